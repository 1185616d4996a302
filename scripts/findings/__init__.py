"""The findings of the InferMax paper, measured again and set against certified optima."""

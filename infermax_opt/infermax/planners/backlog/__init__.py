"""Plans from the last batch to the first in which prompts wait for batches with room below the knee."""

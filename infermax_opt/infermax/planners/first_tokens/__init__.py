"""Plans for first tokens: prompts come first, and whoever has its token makes room."""

"""Plans by rules with parameters, tried by a random search."""

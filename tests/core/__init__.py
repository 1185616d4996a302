"""What all problems share."""

"""What all problems share: results, claims and their verification, exact numbers, one anytime solve."""

"""Large files of results, and what reading them takes."""

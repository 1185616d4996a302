"""Tables of bounds: suites, rows, journal, archive."""

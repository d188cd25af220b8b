"""What descriptions share: groups of rows, counts and moments of them, tests, suppression of small cells."""

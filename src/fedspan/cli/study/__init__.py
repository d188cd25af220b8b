"""Commands about studies: write, check, run and apply them."""

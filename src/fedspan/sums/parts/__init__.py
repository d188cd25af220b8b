"""Numbers as whole numbers in the same order, and counts of values between edges."""

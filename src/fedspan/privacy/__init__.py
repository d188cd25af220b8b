"""What may be known of single rows: audits of what a coordinator received."""

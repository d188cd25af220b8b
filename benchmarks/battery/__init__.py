"""What runs, keeps, shows and checks the comparisons with peers."""

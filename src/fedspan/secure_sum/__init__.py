"""Secure sums: the coordinator learns the total of the sites' replies, and no single one."""

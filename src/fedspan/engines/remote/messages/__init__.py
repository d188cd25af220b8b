"""What travels between coordinator and sites."""

"""The embedded engine: all sites in this process."""

"""Engines carry calls to sites: ``local`` in this process; one folder for each real one."""

"""The sections of a report that come from the records of runs."""

"""Detectors on small devices: a plain file of numbers, scored with numpy alone (``fedspan gateway``)."""

"""``fedspan demo``: eight short runs on one page; six have a picture, a number and ten lines of Python."""

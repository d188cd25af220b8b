"""``fedspan demo``: six short runs, each with a picture, a number and ten lines of Python, on one page."""

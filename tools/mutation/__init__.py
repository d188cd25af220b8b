"""Changes the code in small ways, one at a time, and counts how many of the changes a test notices.

Cosmic Ray's operators make the changes. Its own runner starts a process for each of them, which takes seconds to import
SciPy and writes the change into the working tree; here a process that has imported all but the project forks for each
change, and hands it the changed source. Only the tests that run the changed line are asked, the quickest first.
"""

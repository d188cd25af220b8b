"""Assignment, refinement and checks behind the mixtures."""

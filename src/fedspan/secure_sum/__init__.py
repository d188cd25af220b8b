"""The secure sum: the double-masking protocol of Bonawitz et al. (2017) under ``fed.sum`` and ``fed.mean``."""

"""Networks, federated averaging and scoring behind the detectors."""

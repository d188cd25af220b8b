"""Mixtures of regressions: starts, refinement by FedAvg, FedProx or exact rounds, and baselines."""

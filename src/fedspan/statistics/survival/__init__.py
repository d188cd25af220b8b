"""Survival: Kaplan-Meier curves, the log-rank test and Cox regression by sums."""

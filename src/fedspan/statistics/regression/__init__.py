"""Linear, logistic and Poisson regression by sums."""

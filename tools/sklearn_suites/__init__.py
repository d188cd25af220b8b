"""scikit-learn's own tests, run on fedspan's estimators: ``python -m tools.sklearn_suites pca | k_means | scaler``."""

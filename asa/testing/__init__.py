"""Contract suites: what every backend and every estimator must keep; for third parties too."""

"""Legs of long computations on real logs: the cost of continuing in the next job, for several strategies."""

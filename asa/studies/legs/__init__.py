"""Legs of long computations on real logs: what it costs to go on in the next job, and what asa makes of it."""

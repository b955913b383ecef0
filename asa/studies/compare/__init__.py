"""Compares strategies on a simulated queue: `asa compare`."""

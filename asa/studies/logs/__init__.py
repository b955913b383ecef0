"""Compares strategies on real logs: `asa experiment strategies`."""

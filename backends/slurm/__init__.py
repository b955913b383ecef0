"""Slurm: what its accounting tells."""

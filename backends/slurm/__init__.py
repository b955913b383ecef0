"""Slurm, and its accounting."""

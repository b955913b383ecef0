"""Shared by backends whose jobs are shell scripts: the script around a payload, and a run's folder."""

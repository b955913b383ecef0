"""Compares workflows with chosen shapes to workflows at each single width."""

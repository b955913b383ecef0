"""Batch systems, simulated and real, installed as ``asa.backends``; the core finds each by its entry point."""

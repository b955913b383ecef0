"""Machines with a queue and a clock, for the engine to seat its client at."""

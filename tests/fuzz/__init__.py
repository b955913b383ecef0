"""Generated input for everything that asa reads, and planted files for every command; `tools/fuzz.py` runs them."""

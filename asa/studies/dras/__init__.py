"""Trains DRAS's agents, and compares them on days that none of them has seen: `asa dras`."""

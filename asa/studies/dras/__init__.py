"""DRAS's agents trained, and compared on days that none of them has seen: `asa dras`."""

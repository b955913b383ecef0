"""The laboratory: what is found out by many runs, on simulated centres and real logs; no run of a user needs it."""

"""Ways of asking compared, on real logs: `asa experiment strategies`."""

"""Ways of asking beside each other, on real logs: `asa experiment strategies`."""

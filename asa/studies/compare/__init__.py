"""Ways of asking compared, on a simulated queue: `asa compare`."""

"""Ways of asking beside each other, on a simulated queue: `asa compare`."""

"""Compares choices of widths by forecasts with the truth: `asa evaluate --choices`."""

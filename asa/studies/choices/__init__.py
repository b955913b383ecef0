"""Choices of widths by forecasts, held against the truth: `asa evaluate --choices`."""

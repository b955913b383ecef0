"""OpenCCS's plans: their speed, and the accuracy of their starts: `asa ccs`."""

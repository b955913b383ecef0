"""OpenCCS's plans, how fast they are made and what they are worth: `asa ccs`."""

"""The evaluation of the ASA paper, repeated: `asa campaign paper`."""

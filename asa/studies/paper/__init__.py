"""The ASA paper's evaluation, repeated: `asa campaign paper`."""

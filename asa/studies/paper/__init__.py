"""The ASA paper's evaluation, done anew: `asa campaign paper`."""

"""What malleable jobs are worth, compared with the DMR paper's figures: `asa dmr`."""

"""What malleable jobs are worth, beside the DMR paper's figures: `asa dmr`."""

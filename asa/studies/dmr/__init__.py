"""The benefit of malleable jobs, compared with the DMR paper's figures: `asa dmr`."""

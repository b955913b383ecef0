"""BBSched's methods compared over workloads, beside the paper's figures: `asa bbsched`."""

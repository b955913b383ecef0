"""BBSched's methods compared over workloads, and with the paper's figures: `asa bbsched`."""

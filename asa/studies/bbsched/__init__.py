"""BBSched's methods compared on workloads, and with the paper's figures: `asa bbsched`."""

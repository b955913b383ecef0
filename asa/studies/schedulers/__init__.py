"""Every strategy under every scheduler, and what it does to others: `asa campaign schedulers`."""

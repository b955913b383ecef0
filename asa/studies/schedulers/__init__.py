"""Every strategy under every scheduler, and its effects on other users: `asa campaign schedulers`."""

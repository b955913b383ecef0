"""BBSched: picks jobs from a window at the front of the queue so that several resources are used well at once (Fan et al., HPDC 2019)."""

"""BBSched: jobs from a window at the front of the queue, so that several resources are used well (Fan et al.)."""

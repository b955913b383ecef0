"""BBSched: picks jobs from a window at the front of the queue so that several resources are used well at once.

After Y. Fan et al., "Scheduling Beyond CPUs for HPC", HPDC 2019.
"""

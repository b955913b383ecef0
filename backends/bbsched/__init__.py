"""BBSched: selects jobs from a window at the head of the queue so that several resources are used well together.

After Y. Fan et al., "Scheduling Beyond CPUs for HPC", HPDC 2019.
"""

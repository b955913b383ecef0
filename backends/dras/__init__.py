"""DRAS: an agent that learns by reinforcement which job to start, to reserve for, and to backfill.

After Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021.
"""

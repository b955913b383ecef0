"""DMR: jobs that shrink and grow while they run (Iserte et al.).

After "DMR API: Improving the Cluster Productivity by Turning Applications into Malleable". `policy` decides on a
resize, `mechanics` does it, `cluster` runs jobs of `applications`, and `study` puts workloads beside the paper's.
"""

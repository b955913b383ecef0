"""DMR: jobs that shrink and grow while they run (Iserte et al.).

After "DMR API: Improving the Cluster Productivity by Turning Applications into Malleable". `policy` decides on a
resize, and `mechanics` carries it out: in a simulated queue (`core`), for programs on this machine (`manager`), or in a
job of any batch system (`in_job`). The paper's study, with its own cluster, is in `asa.studies.dmr`.
"""

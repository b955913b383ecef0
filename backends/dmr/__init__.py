"""DMR: jobs that shrink and grow while they run (Iserte et al.)."""

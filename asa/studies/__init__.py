"""The laboratory: studies of many runs on simulated centres and real logs. No run of a user needs it."""

"""How much sooner workflows with chosen shapes end than with each single width."""

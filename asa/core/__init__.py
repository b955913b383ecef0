"""What everything stands on: files, locks, processes, plug-ins, compiled code, intervals."""

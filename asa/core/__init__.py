"""The foundation: files, locks, processes, plug-ins, compiled code, intervals."""

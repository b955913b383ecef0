# Runs a worker, in place of this shell.
eval "exec $command"

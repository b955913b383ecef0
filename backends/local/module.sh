#!/bin/sh
# In place of the `module` of a cluster, where a job of this computer asks for it.
# What would load something is noted, and does no harm: programs are found where they are installed here.
if [ "$#" -gt 0 ]; then
  printf 'asa: "module %s" does nothing on this computer; programs are those that PATH leads to\n' "$*" >&2
else
  printf 'asa: "module" does nothing on this computer\n' >&2
fi

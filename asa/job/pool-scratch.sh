# A folder for the files of a worker of dask: where memory has no space for them, and where it looks for modules; else it
# would be in one that anybody may have made. It is one for all of a user's pools, in which dask removes what is left of
# workers that were killed; where that name is taken, one that nobody can have made. Whose it is, and of what kind, is
# one look: between two it could be swapped.
if [ -n "$base" ]; then mkdir -p "$base"; else base=${TMPDIR:-/tmp}; fi
if [ -d "$base" ] && [ -w "$base" ]; then :; else base=/tmp; fi
at=`asa_fixed "$base"` || at=
if [ -z "$at" ] && [ "$base" != /tmp ]; then
  printf 'asa: others can exchange what is in %s: workers keep their files in /tmp\n' "$base" >&2
fi
base=${at:-/tmp}
user=$(id -u)
scratch=$base/asa-pools-$user
mkdir -m 700 "$scratch" 2>/dev/null
whose=$(ls -ldn "$scratch" | { read -r mode _ owner _; echo "$mode $owner"; })
case $whose in drwx--[-S]---*" $user") ;; *) scratch=$(mktemp -d "$base/asa-pools-XXXXXXXX") || exit 1 ;; esac
eval "exec $command"

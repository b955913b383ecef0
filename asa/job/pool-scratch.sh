# A folder for a dask worker's files: for data that do not fit into memory, and for modules; else dask would use one
# that anybody may have made. All of a user's pools share it, so that dask removes the remains of killed workers there;
# if its name is taken, a new one is made. Its owner and type are read in one look: between two it could be swapped.
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

# Opens a folder, and sets `asa_held` to a name by which processes of this computer reach it while this shell runs, even
# if others rename or replace it. Fails if that has just happened, or the folder does not exist.
asa_hold() { # a folder, the number of a descriptor for it
  asa_named=$1 asa_held=$1
  [ -d "/proc/$$/fd/." ] || return 0 # a system without such names
  [ -d "$1" ] && (eval "exec $2<\"\$1\"") 2>/dev/null || return 1
  eval "exec $2<\"\$1\""
  [ "$1/." -ef "/proc/$$/fd/$2/." ] || return 1
  asa_held=/proc/$$/fd/$2
}

# Opens a folder, and sets `asa_held` to a name by which processes of this computer reach it while this shell runs,
# whatever others rename or put in its place. It fails where that has just been done, or the folder is not there.
asa_hold() { # a folder, a number that stands for it
  asa_named=$1 asa_held=$1
  [ -d "/proc/$$/fd/." ] || return 0 # a system without such names
  [ -d "$1" ] && (eval "exec $2<\"\$1\"") 2>/dev/null || return 1
  eval "exec $2<\"\$1\""
  [ "$1/." -ef "/proc/$$/fd/$2/." ] || return 1
  asa_held=/proc/$$/fd/$2
}

# Sets `asa_at` to a name by which this computer reaches what is in the run's folder, which its job's script holds open:
# others may put another folder in its place.
asa_held_run=${ASA_RUN_HELD-}
unset ASA_RUN_HELD
asa_here() { # a path
  asa_at=$1
  case $asa_held_run in *:/*) ;; *) return 0 ;; esac
  case $1 in
    "${asa_held_run#*:}"/*) [ ! -d "${asa_held_run%%:*}/." ] || asa_at=${asa_held_run%%:*}${1#"${asa_held_run#*:}"} ;;
  esac
}

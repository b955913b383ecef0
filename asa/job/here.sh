# Sets `asa_at` to a name by which this computer reaches the run's folder. The job's script holds that folder open, as
# others may replace it under its own name.
asa_held_run=${ASA_RUN_HELD-}
unset ASA_RUN_HELD
asa_here() { # a path
  asa_at=$1
  case $asa_held_run in *:/*) ;; *) return 0 ;; esac
  case $1 in
    "${asa_held_run#*:}"/*) [ ! -d "${asa_held_run%%:*}/." ] || asa_at=${asa_held_run%%:*}${1#"${asa_held_run#*:}"} ;;
  esac
}

# Sets `asa_at` to a name by which this computer reaches what is in the run's folder, which its job's script holds open:
# others may put another folder in its place.
asa_here() { # a path
  asa_at=$1
  case ${ASA_RUN_HELD-} in *:/*) ;; *) return 0 ;; esac
  case $1 in
    "${ASA_RUN_HELD#*:}"/*) [ ! -d "${ASA_RUN_HELD%%:*}/." ] || asa_at=${ASA_RUN_HELD%%:*}${1#"${ASA_RUN_HELD#*:}"} ;;
  esac
}

# Looks for files that are to be there.

# NFS looks at the server again when a folder is listed. So all folders on the way to a path are listed, from the top.
asa_list_to() {
  asa_way=
  case $1 in /*) asa_rest=${1#/} asa_way=/ ;; *) asa_rest=$1 ;; esac
  ls "${asa_way:-.}" >/dev/null 2>&1 || :
  while :; do
    case $asa_rest in */*) ;; *) return 0 ;; esac
    asa_way=$asa_way${asa_rest%%/*}/ asa_rest=${asa_rest#*/}
    ls "$asa_way" >/dev/null 2>&1 || :
  done
}
# Checks that a path exists and is no empty file; one match of a pattern is enough. Files written on another node may
# become visible up to a minute later.
asa_lacks() {
  asa_lack=
  for asa_pattern do
    eval "set -- $asa_pattern"
    for asa_path do
      if [ -d "$asa_path" ] || [ -s "$asa_path" ]; then continue; fi
      if [ -e "$asa_path" ]; then asa_how=empty; else asa_how=missing; fi
      asa_lack="$asa_lack
asa: the $asa_what $asa_path is $asa_how"
      asa_list_to "$asa_path"
    done
  done
  [ -n "$asa_lack" ]
}
asa_need() {
  asa_what=$1 asa_since=`date +%s` asa_pause=0
  shift
  while asa_lacks "$@"; do
    asa_look_left=$((${ASA_LATENCY_S:-$asa_look_s} + asa_since - `date +%s`))
    if [ "$asa_look_left" -le 0 ]; then printf '%s\n' "${asa_lack#?}" >&2; return 1; fi
    [ "$asa_pause" -gt 0 ] || printf '%s; looking again for %s s\n' "${asa_lack#?}" "$asa_look_left" >&2
    [ "$asa_pause" -ge 5 ] || asa_pause=$((asa_pause + 1))
    [ "$asa_pause" -le "$asa_look_left" ] || asa_pause=$asa_look_left
    sleep "$asa_pause"
    [ -z "${asa_ended_by-}" ] || exit 143
  done
}

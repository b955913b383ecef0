# Steps that run side by side in a job, each in a process of its own: if one fails, that is noted, and the others go on.

# What runs in the background ignores INT, and not every shell lets that be changed: URG is sent in its place.
pass_to_lane() {
  case $2 in INT) kill -s URG "$1" 2>/dev/null || : ;; *) kill -s "$2" "$1" 2>/dev/null || : ;; esac
}
run_in_lane() {
  inner=$1 own=$2 lanes= child=
  for signal in CONT HUP TERM USR1 USR2; do trap "pass_on $signal" "$signal"; done
  trap "pass_on INT" URG
}
# If the job was signalled to end before this process was known, the process is signalled now.
joined() {
  lanes="$lanes $1" lane_steps="$lane_steps $2"
  [ "$signals" -eq 0 ] || kill -s TERM "$1" 2>/dev/null || :
}
leave() {
  code=$1
  [ "$code" -ne 0 ] || [ "$signals" -eq 0 ] || code=143
  drop "$marks/step-$inner-ended"
  [ -z "$own" ] || drop "$posts/$own"
  [ "$word" = gave-back ] || write "$marks/step-$inner-failed" "$code" || :
  hand_up
  exit "$code"
}
# How such a process ended, in addition to its exit code: the target of a link, which needs no space.
hand_up() { ln -sf "${word:-failed}" "$marks/.lane.$job.$inner" || :; }
handed_up() { word=`readlink "$marks/.lane.$job.$1"` && rm -f "$marks/.lane.$job.$1" || word=; }
# The end of a wave. If a step failed, the wave failed, even if another step gave its cores back since its host did not
# hand it over.
gather() {
  failed= why= held= twin=
  # shellcheck disable=SC2086 # words
  set -- $lane_steps
  lane_steps=
  for lane in $lanes; do
    reap "$lane"
    lanes=${lanes# "$lane"}
    [ "$code" -eq 0 ] || handed_up "$1"
    shift
    case $code$word in
      0*) ;;
      *gave-back) held=$code ;;
      *twin) twin=$code ;; # it has another job, and so has what else did not complete
      *) [ -n "$failed" ] || { failed=$code why=$word; } ;;
    esac
  done
  [ -z "$twin" ] || [ -n "$failed" ] || exit "$twin"
  code=${failed:-${held:-0}}
  if [ -n "$failed" ]; then word=$why; elif [ -n "$held" ]; then word=gave-back; else word=; fi
  [ "$code" -eq 0 ] && [ "$signals" -eq 0 ] || finish "$code" "$word"
}

# The end of a script that has several steps to run, one after the other, and those of a wave side by side.

# Whether a step is still to be run.
due() { # its number, its name, its post
  [ "$signals" -eq 0 ] && [ -z "$ending" ] || finish 143
  [ ! -e "$gate/superseded" ] || superseded
  [ -n "$3" ] || return 0
  ls "$posts" >/dev/null 2>&1 || :
  [ -e "$posts/$3" ] || return 0
  say "step $2 has completed before"
  [ -e "$marks/step-$1-ended" ] || { mark "step-$1-began"; mark "step-$1-ended"; }
  return 1
}

# A step writes to files of its own, in the same folder as the job's; to the job's where they cannot be made. After a
# requeue it appends to them.
own_files() { # its number; sets `log` to what their names begin with
  log=
  [ -d "$run/logs" ] && owned "$run/logs" || return 0
  for kind in out err; do
    file=$run/logs/$called.$job.step-$1.$kind
    if [ -e "$file" ] || [ -L "$file" ]; then
      if [ ! -f "$file" ] || [ -L "$file" ] || [ ! -w "$file" ]; then return 0; fi
    else
      (umask go-w; set -C; true >"$file") 2>/dev/null || return 0
    fi
    [ -z "$for_group" ] || chmod g+r,go-w "$file" || :
  done
  log=${file%.err}
}
run_step() { if [ -n "$in_file" ]; then run_file "$1"; else run "$1"; fi; }

step() { # and its text
  mark "step-$1-began"
  [ -z "$3" ] || reserve "$posts/$3" ""
  reserve "$marks/step-$1-ended" ""
  say "step $2"
  own_files "$1"
  if [ -n "$log" ]; then run_step "$4" >>"$log.out" 2>>"$log.err"; else run_step "$4"; fi
  [ "$code" -eq 0 ] && [ "$signals" -eq 0 ] || finish "$code" "$word"
  [ -z "$3" ] || settle "$posts/$3" "" || give_up "step $2 completed, but that cannot be written into $posts"
  settle "$marks/step-$1-ended" "" || give_up "cannot write into $marks"
}

of_step() { eval "name=\$name_$1 post=\$post_$1 wave=\$wave_$1 text=\$text_$1"; }

take_step() {
  of_step "$1"
  set -- "$1" "$name" "$post" "$text"
  if due "$@"; then
    eval "awaited=\$awaits_$1 before=\$before_$1 heeds=\$heeds_$1 in_file=\$in_file_$1"
    [ -z "$awaited" ] || await "$awaited"
    eval "$before"
    step "$@"
  fi
}

place=0 name= post= wave= text= awaited= before=
while [ "$place" -lt "$step_count" ]; do
  place=$((place + 1))
  of_step "$place"
  case $wave in
    '') take_step "$place" ;;
    *)
      (
        run_in_lane "$place" "$post"
        take_step "$place"
        exit 0
      ) &
      joined "$!" "$place"
      [ "$wave" -ne "$place" ] || gather
      ;;
  esac
done
finish "$code" "$word"

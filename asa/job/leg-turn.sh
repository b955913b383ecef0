# A leg waits until the previous one is over, and asks it to end if it still runs. By then this leg may itself be over:
# if its job was requeued, or the client took it for dead.
asa_say() { printf 'asa: %s\n' "$*" >&2; }
asa_unwritable() { asa_say "cannot write into $asa_legs_named"; asa_end unable 87; }
asa_legs_named=$asa_legs
asa_here "$asa_legs"
asa_legs=$asa_at
asa_start=`date +%s`
asa_look() { ls "$asa_legs" >/dev/null 2>&1 || :; } # makes NFS look at the server again
asa_how() { readlink "$asa_legs/over.$1"; }
asa_over() { ln -s "$1" "$asa_legs/over.$asa_leg" 2>/dev/null || [ -h "$asa_legs/over.$asa_leg" ]; }
mkdir -p "$asa_legs" || { asa_say "cannot make $asa_legs_named"; asa_end unable 87; }
asa_look
if [ -h "$asa_legs/over.$asa_leg" ]; then
  asa_say "leg $asa_leg is over, and the next one goes on: nothing more is run here"
  asa_end part-done 90
fi
if [ -e "$asa_legs/wanted.$asa_leg" ]; then # the job was put back into the queue, and the next leg has begun meanwhile
  asa_over left || asa_unwritable
  asa_say "the next leg wants to go on: nothing more is run here"
  asa_end part-done 90
fi
asa_before=$((asa_leg - 1))
if [ "$asa_leg" -gt 1 ] && [ ! -h "$asa_legs/over.$asa_before" ]; then
  if [ -n "$asa_warning" ]; then
    asa_say "leg $asa_before still runs: it is asked to save its state and end"
    : >"$asa_legs/wanted.$asa_before" || asa_unwritable
  fi
  asa_waited=0
  until [ -h "$asa_legs/over.$asa_before" ]; do
    if [ "$asa_waited" -ge "$asa_patience" ]; then
      rm -f "$asa_legs/wanted.$asa_before"
      asa_say "leg $asa_before did not end within $asa_patience seconds: this one gives its cores back"
      asa_end unyielding 92
    fi
    sleep 1
    asa_waited=$((asa_waited + 1))
    asa_look
  done
fi
if [ "$asa_leg" -gt 1 ]; then
  case `asa_how "$asa_before"` in done*) asa_say "all is done already"; asa_end part-done 90 ;; esac
fi

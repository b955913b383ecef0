# How the leg ended. A payload that saves its state all along need not handle the signal: then the signal kills it.
asa_code=$?
[ -z "$asa_warning" ] || kill "$asa_watch" 2>/dev/null || :
asa_is_over=
if [ "$asa_code" -eq "$asa_unfinished" ]; then
  asa_is_over=1
elif [ -e "$asa_wanted" ] || [ -e "$asa_legs/.told.$asa_leg" ]; then
  case $asa_code in "$asa_killed" | 143) asa_is_over=1 ;; esac
fi
if [ "$asa_code" -eq 143 ] && [ "`date +%s`" -ge "$((asa_end_s - 5))" ]; then # ended by its walltime
  asa_is_over=1
fi
if [ -n "$asa_is_over" ]; then
  asa_took=
  if [ -s "$asa_legs/.told.$asa_leg" ]; then
    read -r asa_signalled <"$asa_legs/.told.$asa_leg" || asa_signalled=
    [ -z "$asa_signalled" ] || asa_took=-$((`date +%s` - asa_signalled))
  fi
  if [ -n "$asa_progress" ] && [ "$asa_leg" -gt 1 ]; then
    asa_one=`asa_digest_of "$asa_before"`
    if [ "`asa_show`" = "$asa_at" ] && [ "$asa_at" = "$asa_one" ]; then asa_stall; fi
  fi
  asa_over "left$asa_took" || asa_unwritable
  asa_say "leg $asa_leg is over, and not all is done"
  asa_end part-done 90
fi
[ "$asa_code" -eq 0 ] || exit "$asa_code"

# Of several jobs that race for the same work, the first to get here runs it; a job that was withdrawn does not get here.
# Steps at its beginning that others have completed are passed over. All others are its own from now on.
ls "$posts" >/dev/null 2>&1 || :
place=0 first=
while [ "$place" -lt "$race_count" ]; do
  place=$((place + 1))
  of_race "$place"
  [ -n "$first" ] || [ "$race_count" -eq 1 ] || [ ! -e "$posts/$post" ] || continue
  patiently enclose "$race" || give_up "cannot make $race"
  owned "$race" || give_up "$race belongs to another user: nothing is run"
  patiently take_race || give_up "cannot write into $race"
  if is_outrun; then
    say "another job that was to run the same began before it: nothing is run here"
    finish 93 outrun
  fi
  first=$place
done

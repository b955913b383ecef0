# How a job races with others for the same work: for each of its steps, or for all that it runs.
of_race() { eval "raced=\$race_$1 post=\${post_$1-}"; race=$run/$marks_in/$raced; }
# A link that is there already may be this job's own, as after a requeue.
take_race() { ln -s "$token" "$race/winner" 2>/dev/null || [ -n "`readlink "$race/winner"`" ]; }
is_outrun() {
  ls "$race" >/dev/null 2>&1 || : # makes NFS look at the server again
  winner=`readlink "$race/winner" 2>/dev/null` && [ "$winner" != "$token" ]
}
# What another job of the race has completed is not this one's.
all_posted() {
  [ -n "$posted" ] || return 1
  ls "$posts" >/dev/null 2>&1 || :
  for post in $posted; do
    [ -e "$posts/$post" ] || return 1
  done
  of_race "$race_count"
  ! is_outrun
}

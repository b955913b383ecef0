# Makes the round's folder and list, unless another job did; chooses a name for this start of this job, and gives back
# what its earlier starts, ended by a requeue, had taken.
mkdir -p "$asa_bag" || asa_end unable 87
asa_hold_own "$asa_bag"
[ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] || asa_bag=$asa_held
# In earlier versions a list in one job left a file for each completed task in this folder, with its text and the token
# of its job. These are moved to make space for the rounds, and count as a round before the first.
ls "$asa_bag" >/dev/null 2>&1 || : # makes NFS look at the server again
for asa_note in "$asa_bag"/[0-9]*; do
  [ -f "$asa_note" ] || continue
  if mkdir -p "$asa_bag/notes" && mv -f "$asa_note" "$asa_bag/notes/"; then continue; fi
  [ ! -f "$asa_note" ] || asa_give_up "cannot write into $asa_bag" # else another job moved it
done
[ -s "$asa_bag/$asa_round/list" ] || asa_check_tasks
asa_dir=$asa_bag/$asa_round
mkdir -p "$asa_dir/claims" "$asa_dir/logs" "$asa_dir/returned" "$asa_dir/takers" || asa_give_up "cannot make $asa_dir"
asa_unique=$(uname -n).$$.$(date +%s)
asa_noted() {
  for asa_note in "$asa_bag"/notes/*; do
    asa_task= asa_by=
    { IFS= read -r asa_task && IFS= read -r asa_by; } 2>/dev/null <"$asa_note" || [ -n "$asa_task" ] || continue
    case " $asa_in_doubt " in *" ${asa_by:-.} "*) ;; *) printf 'D %s %s\n' "${asa_note##*/}" "$asa_task" ;; esac
  done
}
asa_earlier() { # what earlier rounds have done
  asa_since=$asa_round
  while [ "$asa_since" -gt 0 ] && [ ! -e "$asa_bag/$((asa_since - 1))/forgotten" ]; do
    asa_since=$((asa_since - 1))
  done
  [ "$asa_since" -gt 0 ] || asa_noted
  while [ "$asa_since" -lt "$asa_round" ]; do
    if [ -s "$asa_bag/$asa_since/list" ]; then
      echo R
      asa_ended "$asa_bag/$asa_since" "$asa_in_doubt" | sed 's/^/E /'
      sed -e 1d -e 's/^/L /' <"$asa_bag/$asa_since/list"
    fi
    asa_since=$((asa_since + 1))
  done
}
if [ ! -s "$asa_dir/list" ]; then
  asa_own=$asa_dir/.list.$asa_unique
  { asa_earlier; asa_tasks | sed 's/^/S /'; } | awk -v divisor="$asa_divisor" -v head="$asa_own.head" '
    /^D/ { did[$2] = substr($0, length($2) + 4) }
    /^R/ { split("", well); place = 0 }
    /^E/ { if ($3 == 0) well[$2] = 1 }
    /^L/ { if (++place in well) did[$2] = substr($0, length($2) + 4) }
    /^S/ {
      task = substr($0, 3)
      if ((++number in did) && did[number] == task) before++; else { print number, task; n++ }
    }
    END { print n + 0, divisor, before + 0 >head }
  ' | cat >"$asa_own.tasks" && cat "$asa_own.head" "$asa_own.tasks" >"$asa_own" &&
    ln "$asa_own" "$asa_dir/list" 2>/dev/null
  rm -f "$asa_own" "$asa_own.head" "$asa_own.tasks"
fi
[ -s "$asa_dir/list" ] || asa_give_up "cannot write into $asa_dir"
read -r asa_count asa_divisor asa_before <"$asa_dir/list"
asa_start=0
while :; do
  asa_start=$((asa_start + 1))
  asa_me=$asa_taker.$asa_start
  ln -s "$asa_unique" "$asa_dir/takers/$asa_me" 2>/dev/null && break
  case $(readlink "$asa_dir/takers/$asa_me") in
    "$asa_unique") break ;; # its answer was lost
    '') asa_give_up "cannot write into $asa_dir" ;;
  esac
  for asa_log in "$asa_dir/logs/$asa_me".*[0-9]; do
    [ ! -e "$asa_log" ] || asa_give_back "${asa_log##*/}" || asa_give_up "cannot write into $asa_dir"
  done
done
asa_forget() { : >"$asa_dir/forgotten"; }

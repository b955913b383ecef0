# A node's workers: a folder through which they communicate, and a pipe in which they report that they are free.
if [ -n "$asa_cpus" ]; then # of each node
  # shellcheck disable=SC2046 # words
  set -- $(printf '%s\n' "$asa_cpus" | awk -F, -v size="$asa_cpus_per_task" -v r="$SLURM_PROCID" '
    { for (i = 1; i <= NF; i++) { split($i, p, /[(x)]+/); k = int(p[1] / size); if (k < 1) k = 1
      for (j = p[2] ? p[2] : 1; j > 0; j--) if (n++ == r) own = k }
      print n, own + 0 }')
  if [ "${1:-0}" -ne "$SLURM_NTASKS" ]; then
    asa_workers=$((SLURM_CPUS_ON_NODE / asa_cpus_per_task))
    [ "$asa_workers" -gt 0 ] || asa_workers=1
  else
    asa_workers=$2
  fi
  echo $$ >"$asa_list.$SLURM_PROCID"
fi
asa_running=$(mktemp -d "$asa_temporary/asa-XXXXXXXX") || asa_end unable 87
trap 'rm -rf "$asa_running"' EXIT
mkfifo "$asa_running/free" && exec 9<>"$asa_running/free" || asa_end unable 87

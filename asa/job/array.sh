# Gives all stages with elements of one array the same number: that of their job that began first. That job links the
# file with its number into place; later jobs find it there, also after a retry.
SLURM_ARRAY_JOB_ID=${SLURM_JOB_ID:-$$}
asa_here "$asa_array"
asa_array=$asa_at
if [ -n "$asa_array" ] && mkdir -p "${asa_array%/*}"; then
  asa_own=$asa_array.$SLURM_ARRAY_JOB_ID.$$
  printf '%s\n' "$SLURM_ARRAY_JOB_ID" >"$asa_own" && ln "$asa_own" "$asa_array" 2>/dev/null
  rm -f "$asa_own"
  asa_own=
  [ ! -s "$asa_array" ] || read -r asa_own <"$asa_array"
  case $asa_own in '' | *[!0-9]*) ;; *) SLURM_ARRAY_JOB_ID=$asa_own ;; esac
fi
export SLURM_ARRAY_JOB_ID

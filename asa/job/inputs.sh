# A job that comes late to a bag may find that inputs have been used up, and removed.
if [ -z "$asa_begun" ] || [ ! -s "$asa_begun" ]; then
  eval "asa_need input $asa_inputs" || asa_end input-missing 84
fi

# Who comes late to a bag may find them used up.
if [ -z "$asa_begun" ] || [ ! -s "$asa_begun" ]; then
  eval "asa_need input $asa_inputs" || asa_end input-missing 84
fi

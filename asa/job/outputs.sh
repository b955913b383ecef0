asa_code=$?
[ "$asa_code" -eq 0 ] || exit "$asa_code"
eval "asa_need output $asa_outputs" || { asa_forget; asa_end output-missing 85; }

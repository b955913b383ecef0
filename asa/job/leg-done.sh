asa_code=$?
[ "$asa_code" -ne 0 ] || asa_over 'done' || :
exit "$asa_code"

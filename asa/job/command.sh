asa_forget() { :; }
eval "asa_run $asa_inside ${asa_in_sh:-$asa_sh} -c -- \"\$asa_command\""

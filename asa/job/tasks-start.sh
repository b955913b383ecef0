# What a task runs, and what is said of its end.
asa_start() { eval "asa_run $asa_inside ${asa_in_sh:-$asa_sh} -c -- \"\$1\""; }
asa_say_failed() { # its number, how many there are, its text
  printf 'asa: task %s of %s failed with exit code %s: %s\n' "$1" "$2" "$asa_code" "$3" >&2
}
asa_word_of_task() { asa_word=; } # there is none: its exit code is all

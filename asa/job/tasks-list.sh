# A stage's tasks, one a line.
asa_tasks() {
  if [ -z "$asa_tasks_file" ]; then printf '%s\n' "$asa_task_lines"; return; fi
  grep -v -e '^[[:space:]]*$' -e '^[[:space:]]*#' <"$asa_tasks_file"
}
asa_check_tasks() {
  [ -n "$asa_tasks_file" ] && [ ! -r "$asa_tasks_file" ] || return 0
  printf 'asa: the list of tasks is missing: %s\n' "$asa_tasks_file" >&2
  asa_end input-missing 84
}
# What each runs, if they are the elements of an array.
asa_write_element() {
  [ -n "$asa_element" ] || return 0
  (umask 077; printf '%s\n' "$asa_element" | cat >"$asa_list.element") || asa_end unable 87
}
asa_refuse_none() { # how many there are
  [ "$1" -eq 0 ] || return 0
  echo 'asa: the list of tasks is empty' >&2
  asa_end input-missing 84
}

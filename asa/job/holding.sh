# Holds open a folder from which lines are run: one of the user's, or in a place that the user trusts. Other nodes reach
# it by its name, and hold it open themselves.
asa_hold_own() {
  asa_hold "$1" 7 && { [ -n "$asa_trusted" ] || asa_owned "$asa_held/."; } && return
  printf 'asa: %s belongs to another user: nothing of it is run\n' "$1" >&2
  asa_end unable 87
}

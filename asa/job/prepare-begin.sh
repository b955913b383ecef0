# What comes before a stage's command, in the shell whose children are to have it.
asa_unready() { # what is wrong
  trap - EXIT
  printf 'asa: %s\n' "$*" >&2
  asa_end setup-failed 82
}
asa_folder=$PWD
# whatever lets the shell leave here: `exit`, `set -e`, what it cannot read
asa_why='the shell left before its environment was ready'
trap 'asa_unready "$asa_why"' EXIT

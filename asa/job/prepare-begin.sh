# What prepares a stage's environment before its command, in the shell from which the command gets it.
asa_unready() { # what is wrong
  trap - EXIT
  printf 'asa: %s\n' "$*" >&2
  asa_end setup-failed 82
}
asa_folder=$PWD
# whatever ends the shell here: `exit`, `set -e`, a syntax error
asa_why='the shell left before its environment was ready'
trap 'asa_unready "$asa_why"' EXIT

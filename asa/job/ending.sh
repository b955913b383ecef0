asa_at_end= # what this shell does when it ends
# A word reports how this text ended to whoever runs it; it is the target of a link, which needs no space on a disk.
# What runs inside this text reports to nobody: its exit code becomes this text's own.
asa_end() { # a word, an exit code
  [ -z "$asa_outcome" ] || ln -sf "$1" "$asa_outcome" || :
  exit "$2"
}

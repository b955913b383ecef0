# What a task runs, and what is said of its end. If its text is plain words, of which the first is a program, it needs no
# shell: nothing is a variable, a pattern, or an assignment.
asa_programs=' '
asa_is_plain() { # a text
  case $1 in *[!A-Za-z0-9_./,:+%@=\ -]* | [\ -]*) return 1 ;; esac
  asa_first=${1%% *}
  case $asa_programs in *" $asa_first "*) return 0 ;; esac
  case $asa_first in *=*) return 1 ;; esac
  case `command -v "$asa_first"` in */*) ;; *) return 1 ;; esac
  [ "${#asa_programs}" -lt 4000 ] || asa_programs=' ' # else each task of many programs would search all before it
  asa_programs="$asa_programs$asa_first "
}
asa_start() {
  if [ -z "$asa_inside$asa_in_sh" ] && asa_is_plain "$1"; then
    # shellcheck disable=SC2086 # words
    $1 8<&- 9>&-
    return
  fi
  eval "$asa_inside ${asa_in_sh:-$asa_sh} -c -- \"\$1\"" 8<&- 9>&-
}
asa_say_failed() { # its number, how many there are, its text
  printf 'asa: task %s of %s failed with exit code %s: %s\n' "$1" "$2" "$asa_code" "$3" >&2
}
asa_word_of_task() { asa_word=; } # there is none: its exit code is all

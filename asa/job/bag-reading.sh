# Reads the rounds' lists and logs. A record is complete from its colon to its semicolon: a disk may fill up within one,
# and the next follows the part that was written. The newline comes last, since bash writes up to each.

asa_give_up() {
  asa_said=$*
  [ -z "${asa_held-}" ] || case $asa_said in
    *"$asa_held"*) asa_said=${asa_said%%"$asa_held"*}$asa_named${asa_said#*"$asa_held"} ;;
  esac
  printf 'asa: %s\n' "$asa_said" >&2
  asa_end unable 87
}
# Prints the position in a round's list, and the exit code, of each task that has ended. Jobs in doubt are left out.
asa_ended() { # its folder, tokens
  (
    cd "$1" || exit
    asa_doubt=${2-}
    ls returned logs >/dev/null 2>&1 || : # makes NFS look at the server again
    set -- logs/*
    [ -e "$1" ] || exit 0
    set -- returned/* "$@"
    [ -e "$1" ] || shift
    awk -v doubt=" $asa_doubt " '
      FNR == 1 {
        who = FILENAME
        given = sub(/^returned\//, "", who)
        sub(/^logs\//, "", who)
        sub(/\.spare$/, "", who)
        in_doubt = index(doubt, " " substr(who, 1, index(who, ".") - 1) " ")
      }
      in_doubt { next }
      given { for (place = $1; place <= $2; place++) gone[who, place] = 1; next }
      { sub(/.*:/, "") }
      /^[0-9]+ [0-9]+ [0-9]+ [0-9]+( [a-z-]+)?; *$/ { if (!((who, $1) in gone)) print $1, $2 }
    ' "$@"
  )
}
# What a taker had taken and not ended is given back, in pieces.
asa_give_back() {
  [ ! -e "$asa_dir/returned/$1" ] || return 0
  [ -e "$asa_dir/logs/$1" ] && [ -e "$asa_dir/logs/$1.spare" ] || return
  asa_draft=$asa_dir/.returned.$1.$$
  ls -l "$asa_dir/claims" | awk -v me="$1" -v dir="$asa_dir" -v count="$asa_count" -v divisor="$asa_divisor" '
    listing && $(NF - 1) == "->" && $NF == me { taken[$(NF - 2)] = 1; next }
    !listing { sub(/.*:/, "") }
    !listing && /^[0-9]+ [0-9]+ [0-9]+ [0-9]+( [a-z-]+)?; *$/ { ended[$1] = 1 }
    function left(from, to, most,   place, begin) {
      for (place = from; place <= to; place++) {
        if (place in ended) continue
        if (!most) { all++; continue }
        begin = place
        while (place < to && place - begin + 1 < most && !((place + 1) in ended)) place++
        print begin, place
      }
    }
    function each(most,   number, at, size, name, part, line, pieces) {
      for (at = 1; at <= count; at += size) {
        size = int((count - at + 1) / divisor)
        if (size < 1) size = 1
        if (++number in taken) left(at, at + size - 1, most)
      }
      for (name in taken) if (split(name, part, "+") == 2) {
        for (number = 0; (getline line < (dir "/returned/" part[1])) > 0; )
          if (++number == part[2]) { split(line, pieces, " "); left(pieces[1], pieces[2], most) }
        close(dir "/returned/" part[1])
      }
    }
    END { all = 0; each(0); most = int(all / divisor); each(most < 1 ? 1 : most) }
  ' listing=1 - listing= "$asa_dir/logs/$1" "$asa_dir/logs/$1.spare" | cat >"$asa_draft" &&
    ln "$asa_draft" "$asa_dir/returned/$1" 2>/dev/null
  asa_failed=$?
  rm -f "$asa_draft"
  [ "$asa_failed" -eq 0 ] || [ -e "$asa_dir/returned/$1" ]
}

# What a node's taker and its workers tell each other, and records of tasks that have ended.

asa_part=
asa_hear() { # a descriptor; sets `asa_word` to a line, empty if a signal came in between
  asa_word=
  if IFS= read -r asa_word <&"$1"; then
    asa_word=$asa_part$asa_word asa_part=
  else
    asa_part=$asa_part$asa_word asa_word=
  fi
}
asa_record() { # which of those that were begun here, and its record
  printf '%s\n' "${1#* }" >>"$asa_log" 2>/dev/null && return
  printf '%-63s\n' "${1#* }" | dd of="$asa_log.spare" bs=64 seek=$((${1%% *} % asa_spare)) conv=notrunc 2>/dev/null
  printf 'asa: the disk is full: no more tasks are begun here\n' >&2
  echo full >&9
}

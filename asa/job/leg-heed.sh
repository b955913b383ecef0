# The signal is for processes that handle it: a shell that runs a program does not, and would die and leave the program
# behind. In the payload's process tree the topmost process of each branch that handles the signal, or waits for it,
# gets it; if there is none, all are signalled to end.
asa_heeding() { # a process, a signal's number
  ps -e -o pid= -o ppid= | awk -v root="$1" -v bit="$(($2 - 1))" '
    { kids[$2] = kids[$2] " " $1 }
    function heeds(pid,  line, part, at, digit, yes) {
      while ((getline line < ("/proc/" pid "/status")) > 0) {
        split(line, part)
        if (part[1] == "SigCgt:" || part[1] == "SigBlk:") {
          at = length(part[2]) - int(bit / 4)
          digit = index("0123456789abcdef", substr(part[2], at, 1)) - 1
          if (int(digit / 2 ^ (bit % 4)) % 2) yes = 1
        }
      }
      close("/proc/" pid "/status")
      return yes
    }
    function walk(pid,  i, n, of) {
      if (heeds(pid)) { print pid; return }
      all = all " " pid
      n = split(kids[pid], of)
      for (i = 1; i <= n; i++) walk(of[i])
    }
    END { walk(root); print "all" all }'
}
asa_warn() {
  asa_found=`asa_heeding "$asa_child" "$asa_number"`
  asa_all=${asa_found##*all} asa_found=${asa_found%all*}
  if [ -n "$asa_found" ]; then
    for asa_one in $asa_found; do kill -s "$asa_warning" "$asa_one" 2>/dev/null || :; done
  elif [ -n "$asa_all" ]; then
    for asa_one in $asa_all; do kill -s TERM "$asa_one" 2>/dev/null || :; done
  else
    asa_tell_process "$asa_child" "$asa_warning"
  fi
}
asa_pass_on() {
  asa_heard=$((asa_heard + 1))
  case $1 in HUP | INT | TERM) [ "$1" = "$asa_warning" ] || asa_ended_by=$1 ;; esac
  if [ -z "$asa_child" ]; then
    asa_early="$asa_early $1"
  elif [ "$1" = "$asa_warning" ]; then
    asa_warn
  else
    asa_tell_process "$asa_child" "$1"
  fi
}

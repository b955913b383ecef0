"""The text by which a job runs one leg, for any POSIX shell; see `asa.legs` for what the files are."""

from __future__ import annotations

import math
import shlex
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from asa.continuation import Continuation
from asa.outcome import JobOutcome

_KILLED = 128  # with the signal's number added, as shells tell it
_PATIENCE_S = 60  # beyond what a leg that has just begun needs to settle, and to save its state
_LONG_PATIENCE_S = 600  # of a leg that is not told to end, and whose end the batch system has promised


@dataclass(frozen=True, slots=True)
class Turn:
    """Which leg a job runs.

    Parameters
    ----------
    number
        From 1 on, in its round.
    folder
        Of the round.
    walltime_s
        Of its job.
    earlier
        Legs of earlier rounds.
    """

    number: int
    folder: str
    walltime_s: float
    earlier: int = 0


def turn_text(terms: Continuation, turn: Turn, patterns: str) -> str:
    """Write what a leg's job does before its payload: it waits for its turn, and has a watch kept.

    `patterns`: the paths that show its progress, each a word for `eval`.
    """
    killed = _KILLED + signal.Signals[f"SIG{terms.warn}"] if terms.warn else 0
    warn_s = math.ceil(terms.warn_s)
    patience_s = 2 * warn_s + _PATIENCE_S if terms.warn else _LONG_PATIENCE_S
    settles_s = max(min(warn_s, math.floor(turn.walltime_s) - warn_s), 0)  # then it is told anyway
    values = {
        "ASA_LEG": turn.earlier + turn.number,
        "asa_leg": turn.number,
        "asa_legs": turn.folder,
        "asa_warning": terms.warn,
        "asa_warn_s": warn_s,
        "asa_walltime": math.floor(turn.walltime_s),
        "asa_settles": settles_s,
        "asa_patience": patience_s,
        "asa_unfinished": terms.unfinished,
        "asa_killed": killed,
        "asa_number": max(killed - _KILLED, 0),
        "asa_progress": patterns,
        "asa_left": JobOutcome.PART_DONE.ending,
        "asa_stalled": JobOutcome.STALLED.ending,
        "asa_unyielding": JobOutcome.UNYIELDING.ending,
    }
    return "\n".join([*_assigned(values.items()), TURN, PROGRESS])


def _assigned(values: Iterable[tuple[str, object]]) -> Iterable[str]:
    return (f"{name}={shlex.quote(str(value))}" for name, value in values)


# Where signals are trapped commands are substituted the old way: one that arrives while bash 5.2 reads `$(` is lost.
#
# A leg's turn comes once the one before is over, which is asked to end if it runs. Its own turn may be over before: its
# job was put back into the queue, or the client took it for dead.
TURN = r"""
asa_say() { printf 'asa: %s\n' "$*" >&2; }
asa_unwritable() { asa_say "cannot write into $asa_legs"; asa_end unable 87; }
asa_start=`date +%s`
asa_look() { ls "$asa_legs" >/dev/null 2>&1 || :; } # makes NFS look at the server again
asa_how() { readlink "$asa_legs/over.$1"; }
asa_over() { ln -s "$1" "$asa_legs/over.$asa_leg" 2>/dev/null || [ -h "$asa_legs/over.$asa_leg" ]; }
mkdir -p "$asa_legs" || { asa_say "cannot make $asa_legs"; asa_end unable 87; }
asa_look
if [ -h "$asa_legs/over.$asa_leg" ]; then
  asa_say "leg $asa_leg is over, and the next one goes on: nothing more is run here"
  asa_end $asa_left
fi
if [ -e "$asa_legs/wanted.$asa_leg" ]; then # the job was put back into the queue, and the next leg has begun meanwhile
  asa_over left || asa_unwritable
  asa_say "the next leg wants to go on: nothing more is run here"
  asa_end $asa_left
fi
asa_before=$((asa_leg - 1))
if [ "$asa_leg" -gt 1 ] && [ ! -h "$asa_legs/over.$asa_before" ]; then
  if [ -n "$asa_warning" ]; then
    asa_say "leg $asa_before still runs: it is told to save its state and end"
    : >"$asa_legs/wanted.$asa_before" || asa_unwritable
  fi
  asa_waited=0
  until [ -h "$asa_legs/over.$asa_before" ]; do
    if [ "$asa_waited" -ge "$asa_patience" ]; then
      rm -f "$asa_legs/wanted.$asa_before"
      asa_say "leg $asa_before did not end within $asa_patience seconds: this one gives its cores back"
      asa_end $asa_unyielding
    fi
    sleep 1
    asa_waited=$((asa_waited + 1))
    asa_look
  done
fi
if [ "$asa_leg" -gt 1 ]; then
  case `asa_how "$asa_before"` in done*) asa_say "all is done already"; asa_end $asa_left ;; esac
fi
""".strip()

# What a stage shows of its progress: its files' names, as a step may be in them; what is in small files; how long large
# ones are, and since when; of folders the same of what is in them.
PROGRESS = r"""
asa_list() { ls -lnd --full-time -- "$1" 2>/dev/null || ls -lnd -- "$1"; }
asa_show() {
  eval "set -- $asa_progress"
  for asa_path do
    printf '%s\n' "$asa_path"
    if [ -d "$asa_path" ]; then
      ls -lnA --full-time -- "$asa_path" 2>/dev/null || ls -lnA -- "$asa_path"
    elif [ -e "$asa_path" ]; then
      asa_size=`wc -c <"$asa_path"` || asa_size=
      if [ "${asa_size:-65537}" -le 65536 ]; then cksum <"$asa_path"; else asa_list "$asa_path"; fi
    else
      echo none
    fi
  done 2>/dev/null | cksum
}
asa_line() {
  eval "set -- $asa_progress"
  [ -f "$1" ] || return 0
  if [ "`head -c 200 "$1" | LC_ALL=C tr -d '[:print:][:space:]' | wc -c`" -eq 0 ]; then
    head -c 200 "$1" | head -n 1
  else
    printf '%s, %s bytes\n' "${1##*/}" "`wc -c <"$1"`"
  fi
}
asa_digest_of() { [ ! -s "$asa_legs/at.$1" ] || head -n 1 "$asa_legs/at.$1"; }
asa_stall() {
  asa_over left
  asa_say "nothing of what shows its progress changed in the last two legs: $asa_progress"
  asa_end $asa_stalled
}
if [ -s "$asa_legs/at.$asa_leg" ]; then # the job was put back into the queue
  asa_at=`asa_digest_of "$asa_leg"`
else
  asa_at=begun
  [ -z "$asa_progress" ] || asa_at=`asa_show`
  asa_shown=
  [ -z "$asa_progress" ] || asa_shown=`asa_line`
  printf '%s\n%s\n' "$asa_at" "$asa_shown" >"$asa_legs/.at.$asa_leg.$$" &&
    mv -f "$asa_legs/.at.$asa_leg.$$" "$asa_legs/at.$asa_leg" || asa_unwritable
fi
if [ -n "$asa_progress" ] && [ "$asa_leg" -gt 2 ]; then
  asa_one=`asa_digest_of "$asa_before"` asa_two=`asa_digest_of "$((asa_leg - 2))"`
  if [ "$asa_at" = "$asa_one" ] && [ "$asa_at" = "$asa_two" ]; then asa_stall; fi
fi
""".strip()

# The watch looks every five seconds whether the next leg wants to begin, or the walltime is nearly over, and has this
# shell pass on the signal, once. It writes nothing to the job's output, whose end it must not hold up.
WATCH = r"""
ASA_LEG_END=$asa_legs/wanted.$asa_leg
export ASA_LEG ASA_LEG_END
asa_end=$((asa_start + asa_walltime))
case ${SLURM_JOB_END_TIME-} in '' | *[!0-9]*) ;; *) asa_end=$SLURM_JOB_END_TIME ;; esac
if [ -n "$asa_warning" ]; then
  trap : "$asa_warning"
  asa_shell=$$ asa_ready=`date +%s`
  (
    trap - CONT HUP INT TERM USR1 USR2
    while sleep "${ASA_LEG_LOOK_S:-5}" && kill -0 "$asa_shell"; do
      asa_look
      if [ ! -e "$ASA_LEG_END" ] && [ "`date +%s`" -ge "$((asa_end - asa_warn_s))" ]; then
        : >"$ASA_LEG_END"
      fi
      # what has just begun may not be able yet to save anything
      if [ -e "$ASA_LEG_END" ] && [ "`date +%s`" -ge "$((asa_ready + asa_settles))" ]; then
        date +%s >"$asa_legs/.told.$asa_leg"
        kill -s "$asa_warning" "$asa_shell"
        exit
      fi
    done
  ) >/dev/null 2>&1 </dev/null &
  asa_watch=$!
fi
""".strip()

# The warning is for whoever heeds it: a shell that runs a program does not, and would die of it, and leave the program
# behind. Of what runs in the payload those get it that handle it, or wait for it, the topmost of each branch; if nobody
# does, all are told to end.
HEED = r"""
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
  if [ -n "$asa_child" ]; then
    if [ "$1" = "$asa_warning" ]; then asa_warn; else asa_tell_process "$asa_child" "$1"; fi
  fi
}
""".strip()

# How the leg ended. A payload that was told to end may be killed by the signal itself, if it saves its state all along.
END = r"""
asa_code=$?
[ -z "$asa_warning" ] || kill "$asa_watch" 2>/dev/null || :
asa_is_over=
if [ "$asa_code" -eq "$asa_unfinished" ]; then
  asa_is_over=1
elif [ -e "$ASA_LEG_END" ] || [ -e "$asa_legs/.told.$asa_leg" ]; then
  case $asa_code in "$asa_killed" | 143) asa_is_over=1 ;; esac
fi
if [ "$asa_code" -eq 143 ] && [ "`date +%s`" -ge "$((asa_end - 5))" ]; then # ended by its walltime
  asa_is_over=1
fi
if [ -n "$asa_is_over" ]; then
  asa_took=
  if [ -s "$asa_legs/.told.$asa_leg" ]; then
    read -r asa_told <"$asa_legs/.told.$asa_leg" || asa_told=
    [ -z "$asa_told" ] || asa_took=-$((`date +%s` - asa_told))
  fi
  if [ -n "$asa_progress" ] && [ "$asa_leg" -gt 1 ]; then
    asa_one=`asa_digest_of "$asa_before"`
    if [ "`asa_show`" = "$asa_at" ] && [ "$asa_at" = "$asa_one" ]; then asa_stall; fi
  fi
  asa_over "left$asa_took" || asa_unwritable
  asa_say "leg $asa_leg is over, and not all is done"
  asa_end $asa_left
fi
[ "$asa_code" -eq 0 ] || exit "$asa_code"
""".strip()

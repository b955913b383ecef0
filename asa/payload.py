"""The text that a stage's job runs: what a user wants run, between checks of what it needs and of what it made.

It is plain text for any POSIX shell, so it is the same under every backend, alone in a job or one of several steps.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from asa.bags.taking import CLOSING, OPENING, OUTCOME_OF_A_TASK, READING, TAKING
from asa.continuation import Continuation
from asa.core.owned import HOLD, IS_OWNED, is_trusted
from asa.legs.running import END, HEED, WATCH, Turn, turn_text
from asa.outcome import JobOutcome
from asa.preparation import preparing, within
from asa.workflow import BETWEEN_TURNS_S, INPUT_PATIENCE_S, Stage

ARRAY = "ASA_ARRAY"
"""A variable of stages that hold the elements of one job array: its name. They share one ``SLURM_ARRAY_JOB_ID``."""

PRIVATE = "# Not for the list of processes: it has values of variables.\n"
"""How a payload begins that nobody else may read, as everybody may what is in a command line."""

_GLOB = re.compile(r"([*?]|\[!?[A-Za-z0-9_.,-]+\])")
_LONGEST_ARGUMENT_BYTES = 120_000  # Linux takes no longer one than 128 KiB
_CHUNKS_A_WORKER = 2  # that the tasks which are left are cut into, for one of them to be taken next
_MAX_DIVISOR = 2048  # a bag of a million tasks is cut into some 15,000 chunks then


@dataclass(frozen=True, slots=True)
class Share:
    """What a job takes part in that runs a stage's tasks with others.

    Parameters
    ----------
    round
        How often the stage was asked for before.
    taker
        Tells this job from the others, for life: letters, digits and ``-``.
    jobs
        How many there are.
    """

    round: int
    taker: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Notes:
    """Who notes which of a stage's tasks have completed, and whose notes are not believed.

    Parameters
    ----------
    token
        Of this job.
    in_doubt
        Tokens of earlier jobs, in which tasks may have failed that exited with 0.
    """

    token: str = ""
    in_doubt: tuple[str, ...] = ()


def payload_text(
    stage: Stage,
    cores: int,
    *,
    place: str = "",
    share: Share | None = None,
    turn: Turn | None = None,
    notes: Notes | None = None,
) -> str:
    """Write what a stage's job runs.

    The text sets ``ASA_STAGE``, ``ASA_CORES`` and the stage's own variables, checks the inputs, prepares the
    environment, runs, and checks the outputs.

    `place`: a folder, which may be made, for what the stage is to remember if it is run again: which tasks ended
    well.
    `share`: its part in a stage whose tasks several jobs run; it needs a `place`, which is the same for all of them.
    `turn`: which leg it runs of a stage that continues; None where there is no folder to tell of it.
    `notes`: of its tasks, by whom they are made.

    Examples
    --------
    >>> print(payload_text(Stage("add", cores=1, command="mAdd corr.tbl"), 1))
    export ASA_STAGE=add ASA_CORES=1
    mAdd corr.tbl
    """
    if stage.is_idle:
        return ""
    if stage.takes_turns:
        return _in_turn(stage, cores, place, share, notes or Notes())
    parts = [f"export ASA_STAGE={shlex.quote(stage.name)} ASA_CORES={cores}"]
    if stage.array is not None:
        parts += [f"export {name}={value}" for name, value in stage.array.variables]
        parts.append(_ELEMENT)
    legs = stage.continues if turn is not None else None
    if stage.command and not (stage.environment or stage.inputs or stage.outputs or legs or stage.preparation):
        return "\n".join([*parts, stage.command])
    parts.append(_ENDING)
    parts += [f"export {name}={shlex.quote(value)}" for name, value in stage.environment]
    if array := dict(stage.environment).get(ARRAY):
        parts.append(_number_of_array(array, place))
    if legs is not None and turn is not None:
        parts.append(turn_text(legs, turn, " ".join(map(_pattern, legs.progress))))
    parts += _before(stage, place, share)
    parts += _runs(stage, cores, place, share, legs, notes=notes or Notes())
    if legs is not None:
        parts.append(END)
    if stage.outputs:
        parts.append('code=$?\n[ "$code" -eq 0 ] || exit "$code"')
        done = ': >"$asa_dir/forgotten"' if share else 'rm -f "$asa_done"/[0-9]*'
        forget = f"{done}; " if place and _has_tasks(stage) else ""
        missing = f" || {{ {forget}asa_end {JobOutcome.OUTPUT_MISSING.ending}; }}"
        parts.append(f"asa_need output {_patterns(stage.outputs, stage)}{missing}")
    if legs is not None:
        parts.append('code=$?\n[ "$code" -ne 0 ] || asa_over done || :\nexit "$code"')
    return PRIVATE * bool(stage.environment) + "\n".join(parts)


def _before(stage: Stage, place: str, share: Share | None) -> Iterator[str]:
    """Write what must be there before it runs: its inputs, and its environment."""
    needed = [*stage.inputs, *([stage.tasks_file] if stage.tasks_file else [])]
    if needed or stage.outputs:
        yield f"asa_look_s={math.floor(min(_patience_s(stage), stage.walltime_s / 2))}\n{_CHECK}"
    if needed:
        # who comes late to a bag may find them used up
        begun = f"[ -s {shlex.quote(f'{place}/{share.round}/list')} ] || " if share and place else ""
        yield f"{begun}asa_need input {_patterns(needed, stage)} || asa_end {JobOutcome.INPUT_MISSING.ending}"
    if stage.preparation is not None:
        yield preparing(stage.preparation, f"asa_end {JobOutcome.SETUP_FAILED.ending}")
        if stage.preparation.launcher and stage.cpus_per_task > 1:
            yield f"export OMP_NUM_THREADS=${{OMP_NUM_THREADS:-{stage.cpus_per_task}}}"


def _patience_s(stage: Stage) -> float:
    """For how long its files are looked for."""
    return INPUT_PATIENCE_S if stage.input_patience_s is None else stage.input_patience_s


def _runs(
    stage: Stage, cores: int, place: str, share: Share | None, legs: Continuation | None, *, notes: Notes
) -> list[str]:
    """Write how it runs what a user wants run."""
    if share and place:
        return [_bag(stage, cores, place, share, notes=notes)]
    if _has_tasks(stage):
        return [_tasks(stage, cores, place, notes)]
    run = [_RUN]
    if legs is not None:
        run += [HEED, WATCH] if legs.warn else [WATCH]
    beside = _where_all_nodes_look(stage, place)
    cpus_per_task = stage.cpus_per_task
    inside = within(stage.preparation, cores=cores, cpus_per_task=cpus_per_task, gpus=stage.gpus, shown=beside)
    if stage.array is not None:  # what starts it inside may not pass variables on
        inside += "env $asa_element "
    if stage.script or _is_long(stage):
        return [*run, _script(stage.script or stage.command, inside, beside)]
    return [*run, f"asa_run {inside}{_shell(stage)} -c -- {shlex.quote(stage.command)}"]


def _shell(stage: Stage) -> str:
    """Name the shell that a command is for: an image may have no other than sh."""
    return "sh" if stage.preparation is not None and stage.preparation.container else "$asa_sh"


def _for_tasks(stage: Stage, text: str) -> str:
    """Let tasks run where the stage is to run; those that are elements of an array, what these run."""
    if stage.takes_turns:
        begin = "printf 'asa: task %s of %s failed with exit code %s: %s\\n' "
        for count in ('"$1" "$asa_count" "$asa_code" "$2"', '"$3" "$((asa_count + asa_before))" "$asa_code" "$4"'):
            said = f"printf 'asa: element %s failed with exit code %s\\n' {count[-4:]} \"$asa_code\""
            text = text.replace(begin + count, said)
        for line in ("$2", "$4"):
            told = 'ASA_OUTCOME="$asa_running/outcome.$asa_slot"'
            run = f'asa_run env SLURM_ARRAY_TASK_ID="{line}" {told} $asa_limit $asa_sh "$asa_list.element"'
            text = text.replace(f'asa_run $asa_sh -c -- "{line}"', run)
        return text.replace(OUTCOME_OF_A_TASK, _OUTCOME_OF_AN_ELEMENT)
    inside = within(stage.preparation, cores=1, cpus_per_task=1, gpus=stage.gpus)
    return text.replace("asa_run $asa_sh ", f"asa_run {inside}{_shell(stage)} ")


def _number_of_array(array: str, place: str) -> str:
    """Give all stages that hold elements of one array the number of the job that began first of them.

    That one links its number's file to where all look; who comes later finds it there, also after a retry.
    """
    shared = shlex.quote(f"{place.rpartition('/')[0]}/.array-{array}" if place else "")
    return f"asa_first={shared}\n{_ARRAY}"


def _in_turn(stage: Stage, cores: int, place: str, share: Share | None, notes: Notes) -> str:
    """Write how a job takes elements of an array in turn: as tasks, each of which is what an element's job would run.

    It has a time of its own, as there.
    """
    at_once = stage.job_count  # in this job: several where it has other stages, too, and so all that this one needs
    each, of_one = stage.of_each_job(), max(cores // at_once, 1)
    jobs = at_once * (share.jobs if share else 1)
    limit_s = max(math.floor((stage.walltime_s - BETWEEN_TURNS_S) / math.ceil(len(stage.tasks) / jobs)), 1)
    patience_s = min(_patience_s(stage), limit_s / 2)
    text = payload_text(replace(each, tasks=(), jobs=(1, 1), input_patience_s=patience_s), of_one, place=place)
    run = [
        f"export ASA_STAGE={shlex.quote(stage.name)}",
        _ENDING,
        _number_of_array(stage.name, place),
        f"asa_limit_s={limit_s} asa_limit='timeout -k 10 {limit_s}'\n$asa_limit true 2>/dev/null || asa_limit=",
        "export asa_limit asa_limit_s",
    ]
    one = replace(each, request=None, cores=of_one, cpus_per_task=of_one, inputs=(), outputs=(), preparation=None)
    if share and place:
        run.append(_bag(one, cores, place, share, notes=notes, element=text))
    else:
        run.append(_tasks(one, cores, place, notes, text))
    return PRIVATE * bool(stage.environment) + "\n".join(run)


def _counting_kills(stage: Stage) -> str:
    """Write what tells of a list's tasks that a process of theirs was killed, where that is to count."""
    return OOM_KILLS if stage.out_of_memory == "fail" else "asa_kills() { asa_killed=0; }"


def _element_file(text: str) -> list[str]:
    """Write down what each element runs, beside the list of them."""
    end = "ASA_ELEMENT_END"
    while f"\n{end}\n" in f"\n{text}\n":
        end += "_"
    return [f"(umask 077; cat >\"$asa_list.element\" <<'{end}'\n{text}\n{end}\n) || {_GIVE_UP}"]


def _has_tasks(stage: Stage) -> bool:
    return bool(stage.tasks or stage.tasks_file)


def _patterns(paths: Iterable[str], stage: Stage) -> str:
    """Write paths each as one word, which the shell does not expand before it is time.

    In those of an array ``%a`` is the number of the element.
    """
    if stage.array is None:
        return " ".join(shlex.quote(_pattern(path)) for path in paths)
    numbered = (map(_pattern, path.split("%a")) for path in paths)
    return " ".join(shlex.quote('"$SLURM_ARRAY_TASK_ID"'.join(parts)) for parts in numbered)


def _pattern(path: str) -> str:
    """Write a path for `eval`: only what matches stays without quotes."""
    parts = _GLOB.split(path)
    text = "".join(part if i % 2 else (shlex.quote(part) if part else "") for i, part in enumerate(parts))
    return f"./{text}" if path.startswith("-") else text


def _where_all_nodes_look(stage: Stage, place: str) -> str:
    """Name the folder for a script that a launcher starts on other nodes, too: of the run, which is its user's alone.

    Empty for any other script, which is for this node. Where there is no run it is the folder in which commands run.
    """
    is_launched = stage.preparation is not None and bool(stage.preparation.launcher)
    return (place or ".") if is_launched and (stage.script or _is_long(stage)) else ""


def _is_long(stage: Stage) -> bool:
    return len(stage.command.encode()) > _LONGEST_ARGUMENT_BYTES


def _script(text: str, inside: str, beside: str) -> str:
    """Run a script's text as the batch system would: as a file, by the interpreter that its first line names.

    `beside`: the folder for it, if all nodes of the job are to see it; which may be made.
    """
    first, _, _ = text.partition("\n")
    interpreter = first[2:].split() if first.startswith("#!") else ["sh"]
    end = "ASA_END"
    while re.search(rf"(?m)^{end}$", text):
        end += "_"
    body = text if text.endswith("\n") else f"{text}\n"
    folder = {"": '"${TMPDIR:-/tmp}"', ".": '"$PWD"'}.get(beside, shlex.quote(beside))
    lines = [
        *([f"(umask go-w; mkdir -p {folder}) || {_GIVE_UP}"] if beside else []),
        f"asa_script=$(mktemp {folder}/{'.' * bool(beside)}asa-XXXXXXXX) || {_GIVE_UP}",
        "trap 'rm -f \"$asa_script\"' EXIT",
        f"cat >\"$asa_script\" <<'{end}' || {_GIVE_UP}\n{body}{end}",
        f'asa_run {inside}{shlex.join(interpreter)} "$asa_script"',
    ]
    return "\n".join(lines)


def _listed(stage: Stage, into: str) -> list[str]:
    """Write down how a stage's tasks are listed, one a line."""
    if stage.tasks_file:
        name = shlex.quote(stage.tasks_file)
        missing = shlex.quote(f"asa: the list of tasks is missing: {stage.tasks_file}")
        return [
            f"[ -r {name} ] || {{ echo {missing} >&2; asa_end {JobOutcome.INPUT_MISSING.ending}; }}",
            f"grep -v -e '^[[:space:]]*$' -e '^[[:space:]]*#' <{name}{into}",
        ]
    listed = "".join(f"{task}\n" for task in stage.tasks)
    end = "ASA_END"
    while f"\n{end}\n" in f"\n{listed}":
        end += "_"
    return [f"cat <<'{end}'{into}\n{listed}{end}"]


def _bag(stage: Stage, cores: int, place: str, share: Share, *, notes: Notes, element: str = "") -> str:
    """Write how a job takes tasks from a bag that others take from, too; see `asa.bags`.

    `element`: what each runs, if they are the elements of an array.
    """
    workers = max(1, cores // stage.cpus_per_task)
    *check, tasks = _listed(stage, "")
    holds = _holding(place)
    tools = (_ENDING_INSIDE, _counting_kills(stage), _RUN, _INTERRUPTED, READING, holds, _TAKE_ARGUMENTS, _WORKERS)
    take = "\n".join([*tools, _for_tasks(stage, TAKING)])
    lines = [
        f"asa_bag={shlex.quote(place)}",
        f"asa_round={share.round}",
        f"asa_taker={share.taker}",
        *([f"asa_in_doubt={shlex.quote(' '.join(notes.in_doubt))}"] if notes.in_doubt else []),
        # elements are taken one by one, tasks several at a time
        f"asa_divisor={len(stage.tasks) if element else min(_CHUNKS_A_WORKER * workers * share.jobs, _MAX_DIVISOR)}",
        f"asa_cpus_per_task={stage.cpus_per_task}",
        f"asa_workers={workers}",
        f"asa_tasks() {{\n{tasks}\n}}",
        READING,
        holds,
        _HOLD_BAG,
        *(f'[ -s "$asa_bag/$asa_round/list" ] || {line}' for line in check),
        OPENING,
        _RUN,
        f"asa_take={shlex.quote(take)}",
        *(["asa_list=$asa_dir/takers/.$asa_me", *_element_file(element)] if element else []),
        _RUN_BAG,
        CLOSING,
        _TELL_BAG,
    ]
    return "\n".join(lines)


def _holding(place: str) -> str:
    """Write what holds a folder open of which lines are run: one of the user's, or in a place that the user trusts."""
    return f"asa_trusted={'1' if is_trusted(Path(place)) else ''}\n{_HOLDING}"


def _tasks(stage: Stage, cores: int, place: str, notes: Notes, element: str = "") -> str:
    workers = max(1, cores // stage.cpus_per_task)
    holds = [_holding(place)] if place else []
    lines = [
        f"asa_done={shlex.quote(place)}",
        f"asa_cpus_per_task={stage.cpus_per_task}",
        f"asa_workers={workers}",
        '[ -z "$asa_done" ] || mkdir -p "$asa_done" || asa_done=',
        *([*holds, _HOLD_DONE] if holds else []),
        f'asa_list=$(mktemp "${{asa_done:-${{TMPDIR:-/tmp}}}}/.tasks-XXXXXXXX") || {_GIVE_UP}',  # for all nodes to see
        'trap \'rm -f "$asa_list" "$asa_list".*\' EXIT',
    ]
    lines += _listed(stage, f' | cat >"$asa_list" || {_GIVE_UP}')
    lines += _element_file(element) if element else []
    pool = "\n".join(
        [f"asa_token={notes.token}", _counting_kills(stage), _ENDING_INSIDE, *holds, _for_tasks(stage, _POOL)]
    )
    if place and notes.in_doubt:
        lines.append(f"asa_in_doubt={shlex.quote(' '.join(notes.in_doubt))}\n{_FORGET}")
    return "\n".join([*lines, _RUN, f"asa_pool={shlex.quote(pool)}", _RUN_TASKS])


# A word tells whoever runs this text how it ended; it is a link's, which needs no space on a disk. What runs inside has
# nobody to tell: its exit code is this text's own.
_ENDING = """
asa_outcome=${ASA_OUTCOME-}
unset ASA_OUTCOME
asa_end() { # a word, an exit code
  [ -z "$asa_outcome" ] || ln -sf "$1" "$asa_outcome" || :
  exit "$2"
}
""".strip()
_ENDING_INSIDE = 'asa_end() { exit "$2"; }'
_GIVE_UP = f"asa_end {JobOutcome.UNABLE.ending}"

# Other nodes reach a folder by its name, and hold it themselves.
_HOLDING = rf"""
{IS_OWNED}
{HOLD}
asa_hold_own() {{
  asa_hold "$1" 7 && {{ [ -n "$asa_trusted" ] || [ ! -d "$asa_held" ] || asa_owned "$asa_held/."; }} && return
  printf 'asa: %s belongs to another user: nothing of it is run\n' "$1" >&2
  {_GIVE_UP}
}}
""".strip()
_HOLD_BAG = rf"""
mkdir -p "$asa_bag" || {_GIVE_UP}
asa_hold_own "$asa_bag"
[ "${{SLURM_JOB_NUM_NODES:-1}}" -gt 1 ] || asa_bag=$asa_held
""".strip()
_HOLD_DONE = """
if [ -n "$asa_done" ]; then
  asa_hold_own "$asa_done"
  [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] || asa_done=$asa_held
fi
""".strip()

_CHECK = r"""
# NFS looks at the server again when a folder is listed; each on the way to a path, from the first.
asa_list_to() {
  asa_way=
  case $1 in /*) asa_rest=${1#/} asa_way=/ ;; *) asa_rest=$1 ;; esac
  ls "${asa_way:-.}" >/dev/null 2>&1 || :
  while :; do
    case $asa_rest in */*) ;; *) return 0 ;; esac
    asa_way=$asa_way${asa_rest%%/*}/ asa_rest=${asa_rest#*/}
    ls "$asa_way" >/dev/null 2>&1 || :
  done
}
# A path that is there, and no file without content; of a pattern one is enough. What another node has written may be
# seen up to a minute later.
asa_lacks() {
  asa_lack=
  for asa_pattern do
    eval "set -- $asa_pattern"
    for asa_path do
      if [ -d "$asa_path" ] || [ -s "$asa_path" ]; then continue; fi
      if [ -e "$asa_path" ]; then asa_how=empty; else asa_how=missing; fi
      asa_lack="$asa_lack
asa: the $asa_what $asa_path is $asa_how"
      asa_list_to "$asa_path"
    done
  done
  [ -n "$asa_lack" ]
}
asa_need() {
  asa_what=$1 asa_since=`date +%s` asa_pause=0
  shift
  while asa_lacks "$@"; do
    asa_look_left=$((${ASA_LATENCY_S:-$asa_look_s} + asa_since - `date +%s`))
    if [ "$asa_look_left" -le 0 ]; then printf '%s\n' "${asa_lack#?}" >&2; return 1; fi
    [ "$asa_pause" -gt 0 ] || printf '%s; looking again for %s s\n' "${asa_lack#?}" "$asa_look_left" >&2
    [ "$asa_pause" -ge 5 ] || asa_pause=$((asa_pause + 1))
    [ "$asa_pause" -le "$asa_look_left" ] || asa_pause=$asa_look_left
    sleep "$asa_pause"
    [ -z "${asa_ended_by-}" ] || exit 143
  done
}
""".strip()

TELL_PROCESS = r"""
asa_tell_process() { # its number, a signal
  for asa_try in 1 2 3 4 5 6 7 8 9 10; do
    cmp -s "/proc/$$/cmdline" "/proc/$1/cmdline" 2>/dev/null || break
    sleep 0.05 || sleep 1
  done
  kill -s "$2" "$1" 2>/dev/null || :
}
""".strip()
"""A shell function that sends a signal to a child: one that was just forked loses it until it is another program."""

# How many processes of this job the kernel has killed since memory was used up, as far as its node shows that, by
# Slurm's names of control groups. Version 2 counts for a group with all below it; version 1 for each group by itself,
# until that is gone, so that what srun started is counted while it runs.
OOM_KILLS = r"""
asa_add_kills() {
  while read -r asa_oom_id asa_oom_count; do
    [ "$asa_oom_id" != oom_kill ] || asa_killed=$((asa_killed + asa_oom_count))
  done <"$1"
}
asa_kills() {
  asa_killed=0
  [ -n "${SLURM_JOB_ID-}" ] && [ -r /proc/self/cgroup ] || return 0
  while IFS=: read -r asa_oom_id asa_oom_controllers asa_oom_group; do
    case ,$asa_oom_controllers, in
      ,,) asa_oom_root=/sys/fs/cgroup asa_oom_events=memory.events ;;
      *,memory,*) asa_oom_root=/sys/fs/cgroup/memory asa_oom_events=memory.oom_control ;;
      *) continue ;;
    esac
    case $asa_oom_group/ in *"/job_$SLURM_JOB_ID/"*) ;; *) continue ;; esac
    asa_oom_own=$asa_oom_root$asa_oom_group
    asa_oom_job=$asa_oom_root${asa_oom_group%%"/job_$SLURM_JOB_ID"*}/job_$SLURM_JOB_ID
    if [ "$asa_oom_events" != memory.events ]; then
      for asa_oom_own in "$asa_oom_job" "$asa_oom_job"/* "$asa_oom_job"/*/*; do
        asa_oom_file=$asa_oom_own/$asa_oom_events
        [ ! -r "$asa_oom_file" ] || asa_add_kills "$asa_oom_file"
      done
    elif [ -r "$asa_oom_job/$asa_oom_events" ]; then
      asa_add_kills "$asa_oom_job/$asa_oom_events"
    else
      while [ "$asa_oom_own" != "$asa_oom_job" ] && [ ! -r "$asa_oom_own/$asa_oom_events" ]; do
        asa_oom_own=${asa_oom_own%/*}
      done
      [ ! -r "$asa_oom_own/$asa_oom_events" ] || asa_add_kills "$asa_oom_own/$asa_oom_events"
    fi
  done </proc/self/cgroup
}
""".strip()

# Signals go on to what is run, which a shell that waits for it in the foreground would not do. What runs in the
# background would ignore SIGINT and SIGQUIT. A signal ends `wait` early: what may still run is waited for again, and
# where it had ended in that moment the first answer stands.
_RUN = (
    f"{TELL_PROCESS}\n"
    + r"""asa_sh=sh asa_env=
[ -z "${BASH_VERSION-}" ] || asa_sh='bash --posix' # which keeps what sh may drop, as functions that bash exported
! env --default-signal=INT,QUIT true 2>/dev/null || asa_env='env --default-signal=INT,QUIT'
asa_place= # a link for the number of the process that is run: one needs no space on a full disk
asa_note() {
  ln -sf "$1" "$asa_place"
  [ ! -e "${asa_place%/*}/ending" ] || asa_tell_process "$1" TERM # the others were signalled without it
}
asa_run() {
  asa_child= asa_heard=0 asa_code= asa_ended_by=
  for asa_signal in CONT HUP INT TERM USR1 USR2; do trap "asa_pass_on $asa_signal" "$asa_signal"; done
  $asa_env "$@" &
  asa_child=$!
  [ -z "$asa_ended_by" ] || asa_tell_process "$asa_child" "$asa_ended_by"
  [ -z "$asa_place" ] || asa_note "$asa_child"
  while :; do
    asa_was=$asa_heard
    wait "$asa_child" && asa_new=0 || asa_new=$?
    case $asa_code:$asa_new in [0-9]*:127 | [0-9]*:-*) ;; *) asa_code=$asa_new ;; esac
    [ "$asa_was" -ne "$asa_heard" ] || break
  done
  asa_child=
  return "$asa_code"
}
asa_pass_on() {
  asa_heard=$((asa_heard + 1))
  case $1 in HUP | INT | TERM) asa_ended_by=$1 ;; esac
  [ -z "$asa_child" ] || asa_tell_process "$asa_child" "$1"
}
""".strip()
)

# Whether a task that has ended may have been interrupted, with its job: it may have saved its state and left. Whoever
# ends a job lists its processes, then signals one after the other. A pause that begins after the task's end and is
# ended by a signal was on that list, so that the task was not: it had ended by itself.
_INTERRUPTED = r"""
asa_interrupted() {
  if [ -n "$asa_ended_by" ] || [ -e "$asa_running/ending" ]; then return 0; fi
  [ -n "${SLURM_JOB_ID-}" ] || return 1
  for asa_pause in 0.3 1; do
    { env sleep "$asa_pause"; } 2>/dev/null
    case $? in 0) break ;; 129 | 130 | 143) return 1 ;; esac
  done
  [ -n "$asa_ended_by" ] || [ -e "$asa_running/ending" ]
}
""".strip()

# Who was ended by `timeout` had all the time that an element has.
_OUTCOME_OF_AN_ELEMENT = rf"""
  asa_word=
  if [ "$asa_code" -ne 0 ]; then
    asa_word=`readlink "$asa_running/outcome.$asa_slot"` || asa_word={JobOutcome.FAILED}
    rm -f "$asa_running/outcome.$asa_slot"
  fi
  if [ "$asa_code" -eq {JobOutcome.OVERTIME.exit_code} ] || [ "$asa_code" -eq 137 ]; then
    [ "$((asa_time - asa_began))" -lt "$((asa_limit_s * 100))" ] || asa_word={JobOutcome.OVERTIME}
  fi
""".strip("\n")

# What tells elements of an array from each other, for what may run where the job's variables are not.
_ELEMENT = r"""
ASA_ELEMENT=${SLURM_ARRAY_TASK_ID:?}
export ASA_ELEMENT SLURM_ARRAY_TASK_ID
asa_element="ASA_ELEMENT=$ASA_ELEMENT SLURM_ARRAY_TASK_ID=$ASA_ELEMENT SLURM_ARRAY_JOB_ID=${SLURM_ARRAY_JOB_ID-}"
for asa_name in COUNT MIN MAX STEP; do
  eval "asa_element=\"\$asa_element SLURM_ARRAY_TASK_$asa_name=\$SLURM_ARRAY_TASK_$asa_name\""
done
""".strip()

_ARRAY = r"""
SLURM_ARRAY_JOB_ID=${SLURM_JOB_ID:-$$}
if [ -n "$asa_first" ] && mkdir -p "${asa_first%/*}"; then
  asa_own=$asa_first.$SLURM_ARRAY_JOB_ID.$$
  printf '%s\n' "$SLURM_ARRAY_JOB_ID" >"$asa_own" && ln "$asa_own" "$asa_first" 2>/dev/null
  rm -f "$asa_own"
  [ ! -s "$asa_first" ] || read -r SLURM_ARRAY_JOB_ID <"$asa_first"
fi
export SLURM_ARRAY_JOB_ID
""".strip()

# What a node of a job has of its workers; a folder for what they tell each other, and a pipe in which they say that
# they are free.
_WORKERS = r"""
if [ -n "$asa_cpus" ]; then # of each node
  set -- $(printf '%s\n' "$asa_cpus" | awk -F, -v size="$asa_cpus_per_task" -v r="$SLURM_PROCID" '
    { for (i = 1; i <= NF; i++) { split($i, p, /[(x)]+/); k = int(p[1] / size); if (k < 1) k = 1
      for (j = p[2] ? p[2] : 1; j > 0; j--) { if (n++ == r) { first = all; own = k }; all += k } }
      print n, first + 0, own + 0, all }')
  if [ "${1:-0}" -ne "$SLURM_NTASKS" ]; then
    asa_workers=$((SLURM_CPUS_ON_NODE / asa_cpus_per_task))
    [ "$asa_workers" -gt 0 ] || asa_workers=1
    set -- "$SLURM_NTASKS" "$((SLURM_PROCID * asa_workers))" "$asa_workers" "$((SLURM_NTASKS * asa_workers))"
  fi
  asa_first=$2 asa_workers=$3 asa_all=$4
  echo $$ >"$asa_list.$SLURM_PROCID"
fi
asa_running=$(mktemp -d "${TMPDIR:-/tmp}/asa-XXXXXXXX") || asa_end unable 87
trap 'rm -rf "$asa_running"' EXIT
mkfifo "$asa_running/free" && exec 9<>"$asa_running/free" || asa_end unable 87
""".strip()

# What completed in jobs that are in doubt is run again.
_FORGET = rf"""
if [ -n "$asa_done" ]; then
  for asa_note in "$asa_done"/[0-9]*; do
    [ -e "$asa_note" ] || continue
    case " $asa_in_doubt " in *" $(sed -n 2p "$asa_note") "*) rm -f "$asa_note" || {_GIVE_UP} ;; esac
  done
fi
""".strip()

# Runs the lines of a list as tasks, so many at once. A line's number tells it from the others. What completed is noted
# beside its text, so that a stage that is run again, after a failure or on another node, does not run it again. Several
# nodes take turns, each with as many lines as it has cores for, so that none is still busy when others have long been
# idle. A task begins with a slot, which it gives back. A signal goes on to the tasks that run; after one that tells to
# end no more begin.
_POOL = rf"""
{_RUN}
{_INTERRUPTED}
asa_list=$1 asa_done=$2 asa_workers=$3 asa_cpus_per_task=$4 asa_cpus=$5 asa_first=0 asa_all=$3
[ -r "$asa_list" ] || sleep 5
if [ -n "$asa_done" ]; then
  asa_hold_own "$asa_done"
  asa_done=$asa_held asa_list=$asa_held/${{asa_list##*/}}
fi
[ -r "$asa_list" ] || {{ echo "asa: no list of tasks on $(uname -n)" >&2; asa_end unable 87; }}
asa_count=$(grep -c '' <"$asa_list")
{_WORKERS}
asa_task() {{
  if [ -z "$asa_done" ] || [ "$(head -n 1 "$asa_done/$1" 2>/dev/null)" != "$2" ]; then
    # space for the note is taken before, lest a disk that fills up meanwhile loses it
    if [ -n "$asa_done" ] && ! printf '%s\n' "$2" "$asa_token" | cat >"$asa_done/.$1"; then
      : >"$asa_running/failed"
      printf 'asa: task %s of %s is not begun: %s has no space to note its end\n' "$1" "$asa_count" "$asa_named" >&2
      echo "$asa_slot" >&9
      return
    fi
    ASA_TASK=$1
    export ASA_TASK
    asa_place=$asa_running/$asa_slot
    asa_kills
    asa_had_killed=$asa_killed
    asa_run $asa_sh -c -- "$2" </dev/null 7<&- 9>&-
    asa_code=$?
    asa_kills
    [ "$asa_code" -ne 0 ] || [ "$asa_killed" -eq "$asa_had_killed" ] || asa_code={JobOutcome.OUT_OF_MEMORY.exit_code}
    rm -f "$asa_place"
    if [ "$asa_code" -ne 0 ]; then
      : >"$asa_running/failed"
      printf 'asa: task %s of %s failed with exit code %s: %s\n' "$1" "$asa_count" "$asa_code" "$2" >&2
      # what ends the whole job may reach a task first: no other begins before this shell would have heard of it
      [ "$asa_code" -le 128 ] || sleep 1
    else
      echo "$asa_slot" >&9
      asa_slot=
      [ -z "$asa_done" ] || asa_interrupted || mv -f "$asa_done/.$1" "$asa_done/$1" || :
    fi
  fi
  [ -z "$asa_slot" ] || echo "$asa_slot" >&9
}}
asa_signals=0 asa_ending=
asa_tell() {{
  asa_signals=$((asa_signals + 1))
  case $1 in HUP | INT | TERM) asa_ending=1; : >"$asa_running/ending" ;; esac
  for asa_place in "$asa_running"/[0-9]*; do
    [ ! -L "$asa_place" ] || asa_tell_process "`readlink "$asa_place"`" "$1"
  done
}}
for asa_signal in CONT HUP INT TERM USR1 USR2; do trap "asa_tell $asa_signal" "$asa_signal"; done
asa_slot=0
while [ "$asa_slot" -lt "$asa_workers" ]; do
  asa_slot=$((asa_slot + 1))
  echo "$asa_slot" >&9
done
asa_number=0
while IFS= read -r asa_line; do
  asa_number=$((asa_number + 1))
  asa_turn=$(((asa_number - 1) % asa_all - asa_first))
  [ "$asa_turn" -ge 0 ] && [ "$asa_turn" -lt "$asa_workers" ] || continue
  asa_slot=
  until [ -n "$asa_slot" ] || [ -n "$asa_ending" ]; do IFS= read -r asa_slot <&9 || :; done
  [ -z "$asa_ending" ] || break
  asa_task "$asa_number" "$asa_line" &
done <"$asa_list"
while :; do
  asa_before=$asa_signals
  wait || :
  [ "$asa_before" -ne "$asa_signals" ] || break
done
[ -z "$asa_ending" ] || exit 143
[ ! -e "$asa_running/failed" ]
""".strip()

# On several nodes srun would pass a signal to everything that runs there, and not to the tasks alone.
_ON_EACH_NODE = r"""
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] && command -v srun >/dev/null 2>&1; then
  asa_on_each="--nodes=$SLURM_JOB_NUM_NODES --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 --cpu-bind=none"
  asa_pass_on() {
    asa_heard=$((asa_heard + 1))
    case $1 in
      USR1 | USR2)
        srun $asa_on_each --overlap sh -c 'kill -s "$1" "$(cat "$2.$SLURM_PROCID")"' asa-signal "$1" "$asa_list" || :
        return
        ;;
      HUP | INT | TERM) asa_ended_by=$1 ;;
    esac
    [ -z "$asa_child" ] || asa_tell_process "$asa_child" "$1"
  }
  set -- srun $asa_on_each --kill-on-bad-exit=0 "$@" "${SLURM_JOB_CPUS_PER_NODE:-?}"
else
  set -- "$@" ''
fi
asa_run "$@"
""".strip()

_TAKE_ARGUMENTS = """
asa_list=$1 asa_dir=$2 asa_me=$3 asa_workers=$4 asa_cpus_per_task=$5 asa_cpus=$6
[ -r "$asa_dir/list" ] || sleep 5
asa_hold_own "$asa_dir"
asa_dir=$asa_held asa_list=$asa_held/takers/${asa_list##*/}
[ -r "$asa_dir/list" ] || asa_give_up "no list of tasks on $(uname -n)"
""".strip()

_EMPTY = f"echo 'asa: the list of tasks is empty' >&2; asa_end {JobOutcome.INPUT_MISSING.ending}"

_RUN_BAG = rf"""
if [ "$((asa_count + asa_before))" -eq 0 ]; then {_EMPTY}; fi
asa_list=$asa_dir/takers/.$asa_me
set -- $asa_sh -c "$asa_take" asa-tasks "$asa_list" "$asa_dir" "$asa_me" "$asa_workers" "$asa_cpus_per_task"
{_ON_EACH_NODE}
asa_code=$?
case $asa_code in 0) ;; {JobOutcome.UNABLE.exit_code}) {_GIVE_UP} ;; *) exit "$asa_code" ;; esac
""".strip()

_TELL_BAG = rf"""
if [ "$asa_n" -lt "$asa_count" ]; then
  printf 'asa: none of the %s tasks is left to take, and others run %s\n' "$asa_count" "$((asa_count - asa_n))" >&2
  asa_end {JobOutcome.PART_DONE.ending}
fi
[ "$asa_failed" -eq 0 ] || asa_end {JobOutcome.TASKS_FAILED.ending}
""".strip()

_RUN_TASKS = rf"""
asa_count=$(grep -c '' <"$asa_list")
if [ "$asa_count" -eq 0 ]; then {_EMPTY}; fi
set -- $asa_sh -c "$asa_pool" asa-tasks "$asa_list" "$asa_done" "$asa_workers" "$asa_cpus_per_task"
{_ON_EACH_NODE}
asa_code=$?
[ "$asa_code" -ne 143 ] || exit 143
# srun may say that all went well when Slurm took its step away: only what each task has left behind tells
asa_number=0
while [ "$asa_code" -eq 0 ] && [ -n "$asa_done" ] && [ "$asa_number" -lt "$asa_count" ]; do
  asa_number=$((asa_number + 1))
  [ -e "$asa_done/$asa_number" ] || ls "$asa_done" >/dev/null 2>&1 || :
  [ -e "$asa_done/$asa_number" ] || {{
    printf 'asa: task %s of %s did not end\n' "$asa_number" "$asa_count" >&2
    asa_code=1
  }}
done
[ "$asa_code" -eq 0 ] || asa_end {JobOutcome.TASKS_FAILED.ending}
""".strip()

"""The batch script around a payload, and the marks that it leaves.

The script keeps five promises which a batch system alone does not:

- of several jobs of one token, at most one runs the payload, as when a submission was sent twice: the first takes the
  claim, a symbolic link that names its job, which file systems make for one only, NFS too;
- what has posted that it completed is not run again, in this job or in another: each step of a job has a post of its
  own, which is looked for before the step begins; and a job whose stages have another job by now runs nothing more;
- a payload that awaits others begins when these have posted that they completed, not before; and a client that wants
  to give its job back either comes before it, so that it never begins, or hears that it came too late;
- when it began and how it ended is written down where the client finds it, whatever the batch system forgets. Space for
  that is taken before the payload begins, so that a disk which fills up meanwhile does not lose it;
- what cannot be written down makes the job fail: nobody is to depend on it.

What it writes are new files, which nobody else can change, in folders of its own user: it follows no links, and where
somebody else has made a folder of its marks, nothing is run.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from urllib.parse import quote, unquote

from asa.backend import REFUSAL, Step
from asa.core.owned import HOLD, IS_OWNED, is_trusted
from asa.elements import Array, Elements
from asa.outcome import JobOutcome
from asa.payload import OOM_KILLS, PRIVATE, TELL_PROCESS

WITHDRAWN = "withdrawn"
"""What a client writes in the place of a job's id where that would note that it begins its payload."""

ENTRY = "ASA_ENTRY_"
"""With a number from 1 on, the name of a variable that holds another's name and value for the payload alone."""

_LONGEST_ARGUMENT_BYTES = 120_000  # Linux takes no longer one than 128 KiB
_AWAITS = "awaits="
_STEPS = "steps="
_ELEMENTS = "# Its elements: "
_RENUMBERED = ", which Slurm counts from 0 on"
_WALLTIME = "# Its walltime in seconds: "
_POSTED = "posted="
_HEEDS = "# Where Slurm says that its memory ran out: "
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")
_LONGEST_NAME = 100
# for the script's `finish`
_GAVE_BACK, _FOLDER_MISSING = (
    f"{outcome.exit_code} {outcome}" for outcome in (JobOutcome.GAVE_BACK, JobOutcome.FOLDER_MISSING)
)


def is_utf8(text: str) -> bool:
    r"""Say whether a text can be written as UTF-8, as what came from the names of files may not.

    Examples
    --------
    >>> is_utf8("Jörg"), is_utf8("J\udcf6rg")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def job_name(name: str, token: str) -> str:
    """Name a job for the batch system: its own name made safe, then the token, if there is one.

    Examples
    --------
    >>> job_name("fit model/2", "a1-7"), job_name("", "")
    ('fit_model_2.a1-7', 'job')
    """
    safe = _UNSAFE.sub("_", name)[:_LONGEST_NAME].lstrip("-") or "job"
    return f"{safe}.{token}" if token else safe


def file_name(token: str) -> str:
    """Name the file that stands for a posted token; `token_of_file` tells the token again.

    Examples
    --------
    >>> file_name("run/stage 1"), token_of_file("run%2Fstage%201")
    ('run%2Fstage%201', 'run/stage 1')
    """
    name = quote(token, safe="")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def token_of_file(name: str) -> str:
    """Tell which token a file of posts stands for."""
    return unquote(name)


@dataclass(frozen=True, slots=True)
class Payload:
    """What a batch script is to run, and what it promises."""

    name: str  # the job's, as the batch system knows it
    command: str
    folder: str
    marks: Path  # folders for marks of jobs and for posted tokens, absolute
    posts: Path
    token: str = ""  # whose claim it needs; empty for a job that has no twin
    awaits: Sequence[str] = ()  # tokens that it waits for, and those that it posts
    posted: Sequence[str] = ()
    max_await_s: float | None = None  # how long it waits for them; None for as long as the job may last
    steps: Sequence[Step] = ()  # what to run in its place, where it is several commands
    before: Sequence[Sequence[str]] = ()  # for each step, lines of shell to run before it
    shares: bool = False  # whether other jobs run the same, which may still do so when it has nothing left to do
    array: Array | None = None  # whose elements run it, each by itself; each has marks and a post of its own
    # whether the batch system numbers the elements from 0 on, since it takes no number as large as theirs
    is_renumbered: bool = False
    out_of_memory: str = "fail"  # see `JobSpec.out_of_memory`
    walltime_s: float = math.inf  # that the job asks for, which is written down for who finds the script
    heeds: str = "fail"  # see `Kept.out_of_memory`; written down likewise


def batch_script(
    payload: Payload, variable: str, pauses_s: Sequence[float] = (1, 2, 3, 4, 5), *, functions: str = ""
) -> str:
    """Write the batch script of a payload, for any POSIX shell and any text of a command.

    `functions`: text of the shell functions that the lines before steps call. They may set `kept` to the cores that
    the job has left, once it gave others back, and `seen` to words for `env`, with which steps are run from then
    on.
    `pauses_s`: seconds between looks for what it awaits; the last of them from then on. Fractions are for a `sleep`
    that takes them.

    Examples
    --------
    >>> payload = Payload("fit.a1", "echo 'it works'", "/home/me", Path("/r/marks"), Path("/r/posts"), "a1")
    >>> batch_script(payload, "SLURM_JOB_ID").splitlines()[0]
    '#!/bin/sh'
    """
    home, of_run = payload.posts.parent, payload.marks.relative_to(payload.posts.parent)
    marks = f'"$run"/{shlex.quote(f"{of_run}/{payload.token}")}' if payload.token else _of_the_job(of_run)
    head = [
        "#!/bin/sh",
        f"# Written by asa for the job {payload.name}.",
        *([f"{_WALLTIME}{payload.walltime_s:g}"] if math.isfinite(payload.walltime_s) else []),
        *([f"{_HEEDS}{payload.heeds}"] if payload.heeds != "fail" else []),
        f"job=${{{variable}:?}}",
        "owner=$job whole= count=",
        f"pauses='{' '.join(f'{pause:g}' for pause in pauses_s)}'",
        f"token={shlex.quote(payload.token)}",
        f"named={shlex.quote(str(home))}",
        HOLD,
        f'asa_hold "$named" 8 || exit {JobOutcome.UNABLE.exit_code} # exchanged at this moment',
        "run=$asa_held",
        f"marks={marks}",
        f'posts="$run"/{shlex.quote(payload.posts.name)}',
        f"{_AWAITS}{_files(payload.awaits)}",
        f"{_POSTED}{_files(payload.posted)}",
        f"max_idle={'' if payload.max_await_s is None else math.ceil(payload.max_await_s)}",
        f"folder={shlex.quote(payload.folder)}",
        f"shares={'1' if payload.shares else ''}",
        f"{_STEPS}{_files([step.name for step in payload.steps])}",
        "gate=$marks",
        f"trusted={'1' if is_trusted(payload.marks) else ''}",
        *_of_an_element(payload),
    ]
    run = _steps(payload) or [_heeds(payload.out_of_memory), _run(payload.command)]
    called = [functions] if any(payload.before) else []
    return "\n".join([*head, _BODY, *called, *run, 'finish "$code" "$word"', ""])


def _steps(payload: Payload) -> list[str]:
    """Write the steps of a payload: one after the other, and those of a wave side by side."""
    run: list[str] = []
    waves = _waves(payload.steps)
    heeds = _heeding(payload.steps, waves)
    for number, (step, before) in enumerate(zip_longest(payload.steps, payload.before[: len(payload.steps)]), start=1):
        which = f"{number} {shlex.quote(step.name)} {shlex.quote(file_name(step.post))}"
        awaits = [f"await {_files(step.awaits)}"] if step.awaits else []
        lines = [*awaits, *(before or ()), _heeds(heeds[number - 1]), f"step {which} {_run(step.command)}"]
        first, last = waves[number - 1]
        is_alone = first == last
        body = [f"if due {which}; then", *(f"  {line}" for line in lines), "fi"]
        if is_alone:
            run += body
            continue
        run += [
            "(",
            f"  beside {number} {shlex.quote(file_name(step.post))}",
            *(f"  {line}" for line in body),
            "  exit 0",
            ") &",
            f'joined "$!" {number}',
        ]
        if number == last:
            run.append("gather")
    return run


def _waves(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Say of each step which numbers its wave has, the first and the last."""
    begins = [number for number, step in enumerate(steps, start=1) if not (step.beside and number > 1)]
    waves = pairwise([*begins, len(steps) + 1])
    return [(first, after - 1) for first, after in waves for _ in range(first, after)]


def _of_an_element(payload: Payload) -> list[str]:
    """Write what tells an element of an array from the others: its number, and where its marks and its post are.

    What holds for the job as a whole, as whose claim it is, stays in its own folder.
    """
    if payload.array is None:
        return []
    lines = [
        f"{_ELEMENTS}{payload.array.elements}{_RENUMBERED if payload.is_renumbered else ''}",
        *([] if payload.token else ['gate="${marks%/*}/job.${SLURM_ARRAY_JOB_ID:?}"']),
        "owner=${SLURM_ARRAY_JOB_ID:?} element=${SLURM_ARRAY_TASK_ID:?}",
        *(_renumbered(payload.array.elements) if payload.is_renumbered else ()),
        'job=${owner}_$element marks="$gate"/e$element',
        "SLURM_ARRAY_TASK_ID=$element",
        "export SLURM_ARRAY_TASK_ID",
    ]
    if payload.posted:
        lines += [f"whole=$posted count={len(payload.array.all)}", "posted=$whole+/$element"]
    return lines


def _renumbered(elements: Elements) -> list[str]:
    """Write how an element's number follows from its place among all."""
    ranges = " ".join(f"{first}:{last}:{step}" for first, last, step in elements.ranges)
    return [
        f"place=$element ranges={shlex.quote(ranges)}",
        "element=",
        "for range in $ranges; do",
        "  first=${range%%:*} last=${range#*:} step=${range##*:}",
        "  last=${last%:*}",
        "  number=$(((last - first) / step + 1))",
        '  if [ "$place" -lt "$number" ]; then element=$((first + place * step)); break; fi',
        "  place=$((place - number))",
        "done",
        f'[ -n "$element" ] || exit {JobOutcome.UNABLE.exit_code}',
    ]


def _heeding(steps: Sequence[Step], waves: Sequence[tuple[int, int]]) -> list[str]:
    """Say of each step what becomes of it if memory runs out.

    Nothing where one beside it ignores that: they cannot be distinguished, since the kernel counts for the job.
    """
    ignored = {wave for step, wave in zip(steps, waves, strict=True) if step.out_of_memory == "ignore"}
    return ["ignore" if wave in ignored else "fail" for wave in waves]


def _heeds(out_of_memory: str) -> str:
    return f"heeds={'1' if out_of_memory == 'fail' else ''}"


def _run(command: str) -> str:
    """Say how a command is run: handed over as an argument, or in a file where it is too long for one, or private."""
    fits = len(command.encode()) <= _LONGEST_ARGUMENT_BYTES and not command.startswith(PRIVATE)
    how = "run" if fits else "run_file"
    return f"{how} {shlex.quote(command)}"


def _files(tokens: Sequence[str]) -> str:
    """Name the files of tokens, for a shell to take apart at spaces: their names have none."""
    return shlex.quote(" ".join(file_name(token) for token in tokens))


def traits(script: str) -> tuple[bool, tuple[str, ...]]:
    """Say of a script that `batch_script` wrote whether it waits for tokens, and the names of its steps.

    Examples
    --------
    >>> payload = Payload("fit", "true", "/home/me", Path("/r/marks"), Path("/r/posts"), awaits=("a",))
    >>> traits(batch_script(payload, "SLURM_JOB_ID"))
    (True, ())
    """
    head = script.partition(_BODY)[0].splitlines()
    [steps] = [shlex.split(line.removeprefix(_STEPS)) for line in head if line.startswith(_STEPS)]
    return f"{_AWAITS}''" not in head, tuple(token_of_file(name) for name in " ".join(steps).split())


def walltime_of(script: str) -> float:
    """Say of a script that `batch_script` wrote which walltime its job asks for; infinite if it does not say so.

    Examples
    --------
    >>> payload = Payload("fit", "true", "/home/me", Path("/r/marks"), Path("/r/posts"), walltime_s=90.0)
    >>> walltime_of(batch_script(payload, "SLURM_JOB_ID"))
    90.0
    """
    head = script.partition(_BODY)[0].splitlines()
    return next((float(line.removeprefix(_WALLTIME)) for line in head if line.startswith(_WALLTIME)), math.inf)


def heeds_of(script: str) -> tuple[tuple[str, ...], str]:
    """Say of a script that `batch_script` wrote which files its job posts, and what follows if memory runs out.

    Examples
    --------
    >>> payload = Payload("fit", "true", "/home/me", Path("/r/marks"), Path("/r/posts"), posted=("a",), heeds="ignore")
    >>> heeds_of(batch_script(payload, "SLURM_JOB_ID"))
    (('a',), 'ignore')
    """
    head = script.partition(_BODY)[0].splitlines()
    names = [shlex.split(line.removeprefix(_POSTED)) for line in head if line.startswith(_POSTED)]
    posts = tuple(" ".join(word for words in names for word in words).split())
    return posts, next((line.removeprefix(_HEEDS) for line in head if line.startswith(_HEEDS)), "fail")


def array_of(script: str) -> tuple[str, bool]:
    """Say of a script that `batch_script` wrote which elements it is for, and whether they are renumbered.

    Empty for a script of no array.
    """
    head = script.partition(_BODY)[0].splitlines()
    said = next((line.removeprefix(_ELEMENTS) for line in head if line.startswith(_ELEMENTS)), "")
    return said.removesuffix(_RENUMBERED), said.endswith(_RENUMBERED)


def _of_the_job(marks: Path) -> str:
    return f'"$run"/{shlex.quote(f"{marks}/job.")}$job'


_BODY = f"""
signals=0 # to end
heard=0 # of any kind
child=
kept= # cores, once others were given back
seen= # in place of what the environment says
wary= # of what the payload says of its end
over= # the payload, or the step, has ended
lanes= # processes that run the steps of a wave, each by itself
lane_steps= # their steps' numbers
inner= # the number of the step, in such a process
ending= # told to end after that
word= # how it ended; see `asa.outcome`
unset ASA_OUTCOME

# Variables whose names not every shell keeps, as those of functions that bash exported, and those of names that this
# script uses itself come numbered, and are put back for the payload alone; its shell is bash where sh may drop them.
shell=sh
entries=0
while eval "entry=\\${{{ENTRY}$((entries + 1))-}}" && [ -n "$entry" ]; do
  entries=$((entries + 1))
  eval "entry_$entries=\\$entry"
  unset "{ENTRY}$entries"
  case ${{entry%%=*}} in *[!A-Za-z0-9_]*) shell='bash --posix' ;; esac
done
command -v bash >/dev/null 2>&1 || shell=sh

# `echo` would read a backslash as more than itself.
say() {{
  told=$*
  case $told in *"$run"*) told=${{told%%"$run"*}}$named${{told#*"$run"}} ;; esac
  printf 'asa: %s\\n' "$told" >&2
}}
give_up() {{ say "$*"; exit {JobOutcome.UNABLE.exit_code}; }}

# Where signals are trapped commands are substituted the old way: one that arrives while bash 5.2 reads `$(` is lost.

{IS_OWNED}
owned() {{ [ -n "$trusted" ] || [ ! -e "$1" ] || asa_owned "$1"; }}
enclose() {{ (umask go-w; mkdir -p "$1"); }}
# A new file, for nobody else to change; what lies there is removed, and no link followed.
fresh() {{
  if [ -e "$1" ] || [ -L "$1" ]; then rm -f "$1"; fi
  (umask "${{2-go-w}}"; set -C; cat >"$1")
}}

# A file comes into being whole: written beside its place, then renamed. `cat` tells of a full disk, `printf` may not.
drafted() {{ draft=${{1%/*}}/.${{1##*/}}.$job; }}
prepare() {{ drafted "$1"; facts "$2" | fresh "$draft"; }}
commit() {{ drafted "$1"; mv -f "$draft" "$1"; }}
drop() {{ drafted "$1"; rm -f "$draft"; }}
facts() {{
  printf 'job=%s\\nhost=%s\\ntime=%s\\n' "$job" "$(uname -n)" "$(date +%s)"
  [ -z "$kept" ] || printf 'cores=%s\\n' "$kept"
  [ -n "$1" ] || return 0
  [ "$1" -eq 0 ] && how=completed || how=${{word:-failed}}
  printf 'code=%s\\nsignals=%s\\noutcome=%s\\n' "$1" "$signals" "$how"
}}
mark() {{ patiently write "$marks/$1" "" || give_up "cannot write into $marks"; }}
write() {{ prepare "$1" "$2" && commit "$1"; }}

# A full disk may have space again soon.
patiently() {{
  until "$@"; do
    [ "$patience" -gt 0 ] && [ "$signals" -eq 0 ] || return 1
    patience=$((patience - 2))
    sleep 2 || :
  done
}}

# Space is taken beforehand; afterwards only the time is written, over the one that is there, and the name changed.
reserve() {{ patiently prepare "$1" "$2" || give_up "cannot write into ${{1%/*}}"; }}
settle() {{
  drafted "$1"
  if [ -f "$draft" ] && [ ! -L "$draft" ]; then
    {{ facts "$2" | cat 1<>"$draft"; }} 2>/dev/null || :
    patiently commit "$1"
  else
    patiently write "$1" "$2"
  fi
}}

# What the batch system tells the script alone, as a warning that time runs out, is for the payload.
pass_on() {{
  heard=$((heard + 1))
  if [ "$1" = TERM ]; then
    if [ -n "$over" ]; then ending=1; else signals=$((signals + 1)); fi
  fi
  for lane in $lanes; do pass_to_lane "$lane" "$1"; done
  [ -z "$child" ] || asa_tell_process "$child" "$1"
}}

{TELL_PROCESS}

{OOM_KILLS}

# What runs in the background ignores INT, and not every shell lets that be changed: URG stands for it.
pass_to_lane() {{
  case $2 in INT) kill -s URG "$1" 2>/dev/null || : ;; *) kill -s "$2" "$1" 2>/dev/null || : ;; esac
}}

# A signal that is trapped ends `wait` early: then the child may still run, and is waited for again. Where it had ended
# in that moment the second `wait` may know it no more (127, in bash -1), and the first one's answer stands.
await_child() {{
  reap "$child"
  child= # its number may be another's soon
  # What is told to end may save its state and exit with 0, before Slurm, which signals one process after the other,
  # reaches this one. So may srun, if Slurm takes the job away before its tasks begin, and longer before.
  [ "$code" -ne 0 ] || [ -z "${{SLURM_JOB_ID-}}" ] || sleep "${{wary:-0.3}}" || sleep 1 || :
  over=1
}}
reap() {{
  code=
  while :; do
    before=$heard
    wait "$1" && new=0 || new=$?
    case $code:$new in [0-9]*:127 | [0-9]*:-*) ;; *) code=$new ;; esac
    [ "$before" -ne "$heard" ] || break
  done
}}

# A step of a wave runs in a process of its own: if it fails, that is noted, and the others go on.
beside() {{
  inner=$1 own=$2 lanes= child=
  for signal in CONT HUP TERM USR1 USR2; do trap "pass_on $signal" "$signal"; done
  trap "pass_on INT" URG
}}
# One that was told to end before its process was known is told again.
joined() {{
  lanes="$lanes $1" lane_steps="$lane_steps $2"
  [ "$signals" -eq 0 ] || kill -s TERM "$1" 2>/dev/null || :
}}
leave() {{
  code=$1
  [ "$code" -ne 0 ] || [ "$signals" -eq 0 ] || code=143
  drop "$marks/step-$inner-ended"
  [ -z "$own" ] || drop "$posts/$own"
  [ "$word" = {JobOutcome.GAVE_BACK} ] || write "$marks/step-$inner-failed" "$code" || :
  hand_up
  exit "$code"
}}
# What such a process tells of its end, beside its exit code; a link needs no space.
hand_up() {{ [ -z "$inner" ] || ln -sf "${{word:-failed}}" "$marks/.lane.$job.$inner" || :; }}
handed_up() {{ word=`readlink "$marks/.lane.$job.$1"` && rm -f "$marks/.lane.$job.$1" || word=; }}
# The wave's end: what failed counts for more than what gave its cores back, since nobody handed it over.
gather() {{
  failed= why= held= twin=
  set -- $lane_steps
  lane_steps=
  for lane in $lanes; do
    reap "$lane"
    lanes=${{lanes# "$lane"}}
    [ "$code" -eq 0 ] || handed_up "$1"
    shift
    case $code$word in
      0*) ;;
      *{JobOutcome.GAVE_BACK}) held=$code ;;
      *{JobOutcome.TWIN}) twin=$code ;; # it has another job, and so has what else did not complete
      *) [ -n "$failed" ] || {{ failed=$code why=$word; }} ;;
    esac
  done
  [ -z "$twin" ] || [ -n "$failed" ] || exit "$twin"
  code=${{failed:-${{held:-0}}}}
  if [ -n "$failed" ]; then word=$why; elif [ -n "$held" ]; then word={JobOutcome.GAVE_BACK}; else word=; fi
  [ "$code" -eq 0 ] && [ "$signals" -eq 0 ] || finish "$code" "$word"
}}

all_posted() {{
  [ -n "$posted" ] || return 1
  ls "$posts" >/dev/null 2>&1 || : # makes NFS look at the server again
  for post in $posted; do
    [ -e "$posts/$post" ] || return 1
  done
}}

# Of an array: once all elements have posted, so does the whole; who looks last sees all.
post_whole() {{
  [ -n "$whole" ] && [ ! -e "$posts/$whole" ] || return 0
  [ "`ls "$posts/$whole+" | wc -l`" -ge "$count" ] || return 0
  patiently write "$posts/$whole" ""
}}

# Posts are made before the mark of the end, so that a node may fail in between.
finish() {{ # an exit code, a word
  word=${{2-}}
  [ -z "$inner" ] || leave "$1"
  code=$1
  if [ -n "$shares" ] && [ "$word" = {JobOutcome.PART_DONE} ]; then # its part is done, and the whole is not
    for post in $posted; do drop "$posts/$post"; done
    posted= code=0
  else
    [ "$code" -ne 0 ] || [ "$signals" -eq 0 ] || code=143
  fi
  if [ "$code" -eq 0 ]; then
    for post in $posted; do
      [ -e "$posts/$post" ] || settle "$posts/$post" "" ||
        give_up "it completed, but that cannot be written into $posts"
    done
    post_whole || give_up "it completed, but that cannot be written into $posts"
    settle "$marks/ended" 0 || give_up "it completed, but that cannot be written into $marks"
  else
    for post in $posted; do drop "$posts/$post"; done
    write "$marks/ended" "$code" || give_up "cannot write into $marks"
  fi
  exit "$code"
}}

# A link that is there already may be this job's own: it was put back into the queue, or a server answered late.
take_start() {{ ln -s "$owner" "$gate/start" 2>/dev/null || [ -n "`readlink "$gate/start"`" ]; }}

superseded() {{
  say "what this job was to run was asked for again in another: nothing more is run here"
  word={JobOutcome.TWIN}
  hand_up
  exit {JobOutcome.TWIN.exit_code}
}}

for signal in CONT HUP INT TERM USR1 USR2; do trap "pass_on $signal" "$signal"; done

patience=${{ASA_PATIENCE_S:-60}}
patiently enclose "$marks" || give_up "cannot make $marks"
[ -z "$whole" ] || patiently enclose "$posts/$whole+" || give_up "cannot write into $posts"
for place in "$run" "$posts" "$gate" "$marks"; do
  owned "$place" || give_up "$place belongs to another user: nothing is run"
done
# What it prints is for its group to read where the run's folder is, whatever the umask says.
case `ls -ld "$run/logs" 2>/dev/null` in
  drwxr-[xs]---*)
    for place in 1 2; do
      [ ! -f "/dev/fd/$place" ] || [ ! -O "/dev/fd/$place" ] || chmod g+r,go-w "/dev/fd/$place" || :
    done
    ;;
esac
[ ! -e "$gate/superseded" ] || superseded
if [ -n "$token" ]; then
  if ! ln -s "$owner" "$gate/claim" 2>/dev/null; then
    holder=`readlink "$gate/claim"` || give_up "cannot write into $gate"
    if [ "$holder" != "$owner" ]; then
      say "job $holder has the same payload and came first: nothing is run here"
      exit {JobOutcome.TWIN.exit_code}
    fi
    # The same job was put back into the queue. What completed stays completed: others may build on it already.
    if [ -f "$marks/ended" ] && grep -qx code=0 "$marks/ended" 2>/dev/null; then
      post_whole || give_up "cannot write into $posts"
      say "the payload completed before this job was put back into the queue"
      exit 0
    fi
  fi
  if all_posted; then
    say "the payload has completed before"
    post_whole || give_up "cannot write into $posts"
    settle "$marks/ended" 0 || give_up "cannot write into $marks"
    exit 0
  fi
fi
# Of the steps of an earlier run those that completed are still true.
rm -f "$marks"/step-*-failed || give_up "cannot write into $marks"
for file in "$marks"/step-*-began; do
  [ -e "${{file%-began}}-ended" ] || rm -f "$file" || give_up "cannot write into $marks"
done
rm -f "$marks/began" "$marks/ended" "$marks"/.outcome.* "$marks"/.lane.* || give_up "cannot write into $marks"

# What waits before a step has the time that those before it left.
idled=0
await() {{
  awaited=$1
  set -- $pauses
  since=`date +%s`
  for post in $awaited; do
    while :; do
      ls "$posts" >/dev/null 2>&1 || : # makes NFS look at the server again
      [ ! -e "$posts/$post" ] || break
      [ "$signals" -eq 0 ] && [ -z "$ending" ] || finish 143
      if [ -e "$posts/$post{REFUSAL}" ]; then
        say "it is not to wait any longer: it gives its cores back"
        finish {_GAVE_BACK}
      fi
      if [ -n "$max_idle" ] && now=`date +%s` && [ "$((now - since + idled))" -gt "$max_idle" ]; then
        say "what it waits for did not come within $max_idle seconds: it gives its cores back"
        finish {_GAVE_BACK}
      fi
      sleep "$1" &
      child=$!
      wait "$child" || :
      child=
      [ $# -eq 1 ] || shift
    done
  done
  now=`date +%s` || now=$since
  idled=$((idled + now - since))
}}
await "$awaits"
[ "$signals" -eq 0 ] || finish 143

cd -- "$folder" || {{ say "cannot work in $folder"; finish {_FOLDER_MISSING}; }}
[ ! -e "$gate/superseded" ] || superseded
reserve "$marks/ended" 0
[ -n "$steps" ] || for post in $posted; do reserve "$posts/$post" ""; done
if [ -n "$token" ]; then
  patiently take_start || give_up "cannot write into $gate"
  if [ "`readlink "$gate/start"`" != "$owner" ]; then
    say "its cores were given back before the payload began"
    finish {_GAVE_BACK}
  fi
fi
mark began

# What runs in the background has SIGINT and SIGQUIT ignored, and so has all that it starts, unless told otherwise.
run() {{
  over= wary= word= outcome=$marks/.outcome.$job$inner
  case ${{SLURM_JOB_ID:+${{2:-$1}}}} in *srun* | *mpirun* | *mpiexec*) wary=1 ;; esac
  text=$1 number=0
  case ${{2:-$1}} in *asa_outcome=*) set -- "ASA_OUTCOME=$outcome" ;; *) set -- ;; esac
  ! env --default-signal=INT,QUIT true 2>/dev/null || set -- --default-signal=INT,QUIT "$@"
  while [ "$number" -lt "$entries" ]; do
    number=$((number + 1))
    eval "set -- \\"\\$@\\" \\"\\$entry_$number\\""
  done
  [ "$signals" -eq 0 ] || {{ code=143; return; }} # told to end while this was prepared: nothing is begun
  asa_kills
  killed=$asa_killed
  env "$@" $seen $shell -c -- "$text" 8<&- &
  child=$!
  [ "$signals" -eq 0 ] || asa_tell_process "$child" TERM
  await_child
  [ "$code" -eq 0 ] || ! word=`readlink "$outcome" 2>/dev/null` || rm -f "$outcome"
  [ -z "$heeds" ] || heed_memory
}}
# A process that was killed within a pipe may not show in the exit code.
heed_memory() {{
  asa_kills
  [ "$asa_killed" -gt "$killed" ] || return 0
  case $word in
    '' | {JobOutcome.FAILED} | {JobOutcome.OUTPUT_MISSING}) ;;
    {JobOutcome.TASKS_FAILED}) [ -z "$shares" ] || return 0 ;; # which tells others that none is left to take
    *) return 0 ;;
  esac
  say "the kernel killed $((asa_killed - killed)) of its processes, since memory was used up"
  word={JobOutcome.OUT_OF_MEMORY}
  [ "$code" -ne 0 ] || code={JobOutcome.OUT_OF_MEMORY.exit_code}
}}

# No argument may be so long as a file, which is no more once the shell that runs it has begun to read.
run_file() {{
  file=$marks/.payload.$job$inner
  printf 'rm -f "$asa_file"; unset asa_file\n%s\n' "$1" | fresh "$file" 077 || give_up "cannot write into $marks"
  asa_file=$file
  export asa_file
  run '. "$asa_file"' "$1"
  unset asa_file
  rm -f "$file"
}}

# Whether a step is still to be run.
due() {{
  [ "$signals" -eq 0 ] && [ -z "$ending" ] || finish 143
  [ ! -e "$gate/superseded" ] || superseded
  [ -n "$3" ] || return 0
  ls "$posts" >/dev/null 2>&1 || :
  [ -e "$posts/$3" ] || return 0
  say "step $2 has completed before"
  [ -e "$marks/step-$1-ended" ] || {{ mark "step-$1-began"; mark "step-$1-ended"; }}
  return 1
}}

step() {{
  mark "step-$1-began"
  [ -z "$3" ] || reserve "$posts/$3" ""
  reserve "$marks/step-$1-ended" ""
  say "step $2"
  "$4" "$5"
  [ "$code" -eq 0 ] && [ "$signals" -eq 0 ] || finish "$code" "$word"
  [ -z "$3" ] || settle "$posts/$3" "" || give_up "step $2 completed, but that cannot be written into $posts"
  settle "$marks/step-$1-ended" "" || give_up "cannot write into $marks"
}}

# The payload."""

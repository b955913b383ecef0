"""The options of sbatch, with everything that asa knows about each.

Names and how they take a value are those of every release from 22.05 to 26.05, and a few of earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, Literal

from asa.core.late import dataclass

__all__ = ["ALIASES", "KNOWN", "OPTIONS", "SbatchOption", "Takes", "marked", "name_of"]

Takes = Literal["=", "[=]", "-"]
"""Whether an option takes a value: always, optionally, never."""

_MARKS: Final[Mapping[str, str]] = {
    "size": "says how large a job is: it may be part of a stage's request (`asa.requests.sizes`)",
    "memory": "says its memory; sbatch takes one of these",
    "widening": "may give a job another number of cores than its tasks have",
    "spreading": "its cores then do not follow from the number of its nodes, or follow from it otherwise",
    "placing": "names nodes, or asks for more of them than the number of nodes says",
    "counted": "asks for what is counted: no two stages of a job can have it at the same time",
    "added": "of several all count, not only the last",
    "summed": "lists what it asks for as name:count, which is added up for several",
    "alike": "means for a job of several elements of an array what it means for each",
    "target": "says where a job is sent: jobs that are sent there are deferred together",
    "step": "sbatch itself sets a variable of this name in the job, for its steps",
    "key": "a stage says it by a key, or in its command",
    "asa": "asa decides it itself, or it means nothing to a run",
    "job": "is of a single job: the variable by which it could be asked for too is for no job of a run",
    "switch": "its variable sets it or does not, by its value",
    "number": "its value is one whole number",
}

_OLD_API: Final = 38  # of 22.05

# Columns, separated by blanks: name and letter; whether it takes a value; the variable that also sets it (+: its name
# after SBATCH_); its key for slurmrestd (+: its name with _), @N: since API v0.0.N, after / the key of v0.0.38 if that
# differs; its marks; and, if it is refused among a stage's options, what to write instead.
_TABLE: Final = """\
account              A =   +            +                         target alike | Use the stage's key `account`.
acctg-freq           - =   +            -                         alike
array                a =   ARRAY_INX    +                         spreading key job | Use the stage's key `tasks`, \
with one command for each element.
batch                - =   +            -
bb                   - =   BURST_BUFFER burst_buffer              counted
bbf                  - =   -            -                         counted
begin                b =   -            begin_time                asa | asa decides when a job may begin.
chdir                D =   -            current_working_directory key | Write `cd` into the command, or start asa in \
that folder.
cluster-constraint   - =   +            +                         alike
clusters             M =   +            -                         target key job | Of a site with several `clusters`, \
a stage names one with its partition, as in `partition = "batch@big"` or "@big"; another cluster for all of a run is \
the setting `cluster`. Both are set in a site file, or with --option.
comment              - =   -            +                         asa | Use the stage's key `comment`.
consolidate-segments - -   +            flags@45                  switch
constraint           C =   +            constraints               alike
container            - =   +            -
container-id         - =   +            -
container-type       - =   +            +@45
context              - =   -            -
contiguous           - -   -            +@40
core-spec            S =   +            core_specification        widening number
cores-per-socket     - =   -            +@45/+                    number
cpu-freq             - =   CPU_FREQ_REQ cpu_frequency             alike
cpus-per-gpu         - =   +            cpus_per_tres/+           size widening spreading step
cpus-per-task        c =   -            +                         size step number | Use the stage's key \
`cpus_per_task`.
deadline             - =   -            -                         alike
delay-boot           - =   +            -                         alike
dependency           d =   -            +                         asa | Use the stage's key `after`.
distribution         m =   +            +
error                e =   +            standard_error            key job | Use the stage's key `stderr`.
exclude              x =   -            excluded_nodes/exclude_nodes alike
exclusive            - [=] +            shared/+                  widening counted
export               - =   +            -                         key job | Use the stage's key `environment`.
export-file          - =   -            -                         asa | Use the stage's key `environment`.
external             - -   -            - | A job whose processes come from elsewhere runs no command.
extra                - =   -            -
extra-node-info      B =   -            -
get-user-env         - [=] +            -                         asa job | Use the stage's key `environment`.
gid                  - =   -            -                         asa | asa submits as the user who runs it.
gpu-bind             - =   +            -
gpu-freq             - =   +            -
gpus                 G =   +            tres_per_job/+            size spreading counted placing step | Use the \
stage's key `gpus`; for a type of GPU, an option such as --gres=gpu:a100:2.
gpus-per-node        - =   +            tres_per_node/+           size counted step
gpus-per-socket      - =   +            tres_per_socket/+         counted step
gpus-per-task        - =   +            tres_per_task/+           size spreading counted step
gres                 - =   +            tres_per_node/+           size counted
gres-flags           - =   +            flags/+                   counted
hint                 - =   +            threads_per_core          widening alike
hold                 H -   -            +                         asa | asa decides when a job may begin.
ignore-pbs           - -   +            -                         asa job switch
input                i =   +            -                         asa job | Write `<file` into the command.
job-name             J =   +            name                      key job | asa finds its jobs again by their names.
kill-on-invalid-dep  - =   -            -                         asa | asa cancels such jobs itself.
licenses             L =   -            +                         counted summed target alike
mail-type            - =   -            +                         alike added
mail-user            - =   -            +                         alike
mcs-label            - =   -            +                         alike
mem                  - =   MEM_PER_NODE memory_per_node           size memory | Use the stage's key `memory`.
mem-bind             - =   +            -
mem-per-cpu          - =   +            memory_per_cpu            size memory | Use the stage's key `memory`, for the \
whole stage.
mem-per-gpu          - =   +            memory_per_tres@40        size memory step
mem-update           - =   -            -
mincpus              - =   -            minimum_cpus_per_node     size widening spreading number
network              - =   +            +@40
nice                 - [=] -            +                         alike
no-kill              k [=] +            kill_on_node_fail@40
no-requeue           - -   +            requeue@40                alike job switch
nodefile             F =   -            -                         placing
nodelist             w =   -            required_nodes/+          alike placing
nodes                N =   -            +                         size | Use the stage's key `nodes`.
ntasks               n =   -            tasks                     size spreading number | Use the stage's key \
`cores`: there is a task for every `cpus_per_task` of them.
ntasks-per-core      - =   -            tasks_per_core            widening step number
ntasks-per-gpu       - =   -            ntasks_per_tres@40        size spreading placing number
ntasks-per-node      - =   -            tasks_per_node            size step number
ntasks-per-socket    - =   -            tasks_per_socket          step number
ntasks-per-tres      - =   -            -                         number
oom-kill-step        - [=] -            +@45
open-mode            - =   +            +
output               o =   +            standard_output           key job | Use the stage's key `stdout`.
overcommit           O -   +            +@40                      widening spreading switch
oversubscribe        s -   -            shared/+
parsable             - -   -            -                         asa | Leave it out.
partition            p =   +            +                         target key | Use the stage's key `partition`.
power                - =   +            -                         alike
prefer               - =   -            +                         alike
priority             - =   -            -                         alike
profile              - =   +            -                         alike
propagate            - [=] -            -                         alike
qos                  q =   +            +                         target alike
quiet                Q -   -            -                         asa | Leave it out.
reboot               - -   -            +@40                      alike
requeue              - [=] +            +                         alike switch
reservation          - =   +            +                         target alike placing
resources            - =   -            -
resv-ports           - [=] -            -
segment              - =   SEGMENT_SIZE segment_size@45
signal               - =   +            kill_warning_signal/+     alike
sockets-per-node     - =   -            +                         number
spread-job           - -   +            flags/+                   switch
spread-segments      - -   +            flags@45                  switch
stepmgr              - -   -            -
switches             - =   REQ_SWITCH   required_switches@40
test-only            - -   -            -                         asa | Use `asa run --dry-run`.
thread-spec          - =   +            thread_specification      widening number
threads-per-core     - =   +            +                         widening alike step number
time                 t =   TIMELIMIT    time_limit                key job | Use the stage's key `walltime`.
time-min             - =   -            -                         asa | asa must know how long a job may run: use the \
stage's key `walltime`.
tmp                  - =   -            temporary_disk_per_node
tres-bind            - =   +            -                         counted
tres-per-task        - =   +            +@40                      size spreading counted
uid                  - =   -            -                         asa | asa submits as the user who runs it.
use-min-nodes        - -   +            flags@40                  switch
verbose              v -   -            -                         asa | Leave it out.
wait                 W -   +            -                         asa job switch | asa waits itself.
wait-all-nodes       - =   +            -
wckey                - =   +            +                         alike
wrap                 - =   -            -                         key | Use the stage's key `command`.
x11                  - [=] -            -
"""


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """An option of sbatch."""

    name: str
    letter: str  # its short form; empty if it has none
    takes: Takes
    variable: str  # the variable that sets it; empty if there is none
    key: str  # its name for slurmrestd; empty if it has none
    since: int  # the N of the first API v0.0.N with this key
    old_key: str  # its name in v0.0.38; empty if it has none
    marks: frozenset[str]  # see `_MARKS`
    instead: str  # what to do if it is refused among a stage's options; empty if it is accepted

    def key_in(self, version: int) -> str:
        """Return its key in API v0.0.N; empty if that version has none.

        Examples
        --------
        >>> [OPTIONS["gpus"].key_in(version) for version in (38, 40)], OPTIONS["segment"].key_in(44)
        (['gpus', 'tres_per_job'], '')
        """
        if version <= _OLD_API:
            return self.old_key
        return self.key if version >= self.since else ""


def _read() -> Iterator[SbatchOption]:
    for line in _TABLE.splitlines():
        columns, _, instead = line.partition(" | ")
        name, letter, takes, variable, keys, *marks = columns.split()
        if unknown := set(marks) - _MARKS.keys():
            raise ValueError(f"{name} has unknown marks: {', '.join(sorted(unknown))}")
        own = name.replace("-", "_")
        word = own.upper() if variable == "+" else variable
        variable = "" if variable == "-" else f"SBATCH_{word}"
        new, _, old = keys.partition("/")
        new, _, since = new.partition("@")
        old = old or ("-" if since else new)
        new, old = (own if key == "+" else key.strip("-") for key in (new, old))
        way: Takes = "=" if takes == "=" else "[=]" if takes == "[=]" else "-"
        yield SbatchOption(
            name, letter.strip("-"), way, variable, new, int(since or _OLD_API), old, frozenset(marks), instead
        )


OPTIONS: Final[Mapping[str, SbatchOption]] = {option.name: option for option in _read()}
"""All options, by their names."""
ALIASES: Final[Mapping[str, str]] = {
    "cluster": "clusters",
    "share": "oversubscribe",
    "tasks-per-node": "ntasks-per-node",
    "workdir": "chdir",
}
"""Former names of options, with the present ones."""
KNOWN: Final[Mapping[str, SbatchOption]] = {**OPTIONS, **{alias: OPTIONS[name] for alias, name in ALIASES.items()}}
"""All options, by present and former name."""


@cache
def marked(mark: str) -> frozenset[str]:
    """Return the options with a mark.

    Examples
    --------
    >>> sorted(marked("memory"))
    ['mem', 'mem-per-cpu', 'mem-per-gpu']
    """
    if mark not in _MARKS:
        raise ValueError(mark)
    return frozenset(option.name for option in OPTIONS.values() if mark in option.marks)


def name_of(option: str) -> str:
    """Return the name of a written option.

    Examples
    --------
    >>> name_of("--mem-per-cpu=2G"), name_of("--exclusive")
    ('mem-per-cpu', 'exclusive')
    """
    return option.removeprefix("--").partition("=")[0]

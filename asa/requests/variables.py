"""Variables that sbatch reads as options: more than a script's own, less than those of a command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .directives import Directive

_NAMES: Final = (
    "account acctg-freq batch cluster-constraint clusters consolidate-segments constraint container container-id "
    "container-type core-spec cpus-per-gpu delay-boot distribution error exclusive export get-user-env gpu-bind "
    "gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint ignore-pbs input job-name mem-bind "
    "mem-per-cpu mem-per-gpu network no-kill no-requeue open-mode output overcommit partition power profile qos "
    "requeue reservation signal spread-job spread-segments thread-spec threads-per-core tres-bind tres-per-task "
    "use-min-nodes wait wait-all-nodes wckey"
)
VARIABLES: Final[Mapping[str, str]] = {
    **{name: f"SBATCH_{name.upper().replace('-', '_')}" for name in _NAMES.split()},
    "array": "SBATCH_ARRAY_INX",
    "bb": "SBATCH_BURST_BUFFER",
    "cpu-freq": "SBATCH_CPU_FREQ_REQ",
    "mem": "SBATCH_MEM_PER_NODE",
    "segment": "SBATCH_SEGMENT_SIZE",
    "switches": "SBATCH_REQ_SWITCH",
    "time": "SBATCH_TIMELIMIT",
}
"""The variable of each option that has one, of every release from 22.05 to 26.05."""

FLAG_VARIABLES: Final = frozenset(
    (
        "consolidate-segments", "ignore-pbs", "no-requeue", "overcommit", "requeue", "spread-job", "spread-segments",
        "use-min-nodes", "wait",
    )
)  # fmt: skip
"""Options that a variable sets or does not, by its value."""

MEMORY: Final = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
"""Options of which sbatch takes one."""

_MAY_BE_EMPTY: Final = frozenset({"exclusive", "no-kill"})
_ON: Final = frozenset({"", "yes", "set"})


def of_variables(variables: Mapping[str, str], where: str) -> dict[str, Directive]:
    """Read the options that variables say, by their names.

    Examples
    --------
    >>> given = of_variables({"SBATCH_QOS": "high", "SBATCH_EXCLUSIVE": "", "SBATCH_OVERCOMMIT": "no"}, "a.sh:3")
    >>> [str(option) for option in given.values()]
    ['--exclusive', '--qos=high']
    """
    given = {name: variables[variable] for name, variable in VARIABLES.items() if variable in variables}
    if "switches" in given and "SBATCH_WAIT4SWITCH" in variables:
        given["switches"] += f"@{variables['SBATCH_WAIT4SWITCH']}"
    return {
        name: Directive(name, value if value and name not in FLAG_VARIABLES else None, where)
        for name, value in given.items()
        if (_is_on(value) if name in FLAG_VARIABLES else value or name in _MAY_BE_EMPTY)
    }


def with_variables(
    own: Mapping[str, Directive], variables: Mapping[str, str], above: Mapping[str, Directive], where: str
) -> dict[str, Directive]:
    """Put a script's options, those that variables say, and those of the command line together.

    A variable that says memory otherwise than an option does has no effect.
    """
    said = of_variables(variables, where)
    if any(name in own or name in above for name in MEMORY):
        said = {name: option for name, option in said.items() if name not in MEMORY or name in own or name in above}
    return {**own, **said, **above}


def _is_on(value: str) -> bool:
    return value in _ON or value.strip("0").isdigit()

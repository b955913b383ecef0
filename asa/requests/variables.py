"""Variables that sbatch reads as options: they override a script's options and are overridden by the command line's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .directives import Directive, by_name
from .options import OPTIONS, marked

VARIABLES: Final[Mapping[str, str]] = {option.name: option.variable for option in OPTIONS.values() if option.variable}
"""The variable that sets an option, by option."""

FLAG_VARIABLES: Final = marked("switch")
"""Switches: options that a variable sets or does not set, depending on its value."""

MEMORY: Final = marked("memory")
"""Options that give memory, of which sbatch accepts only one."""

_MAY_BE_EMPTY: Final = frozenset({"exclusive", "no-kill"})
_ON: Final = frozenset({"", "yes", "set"})


def of_variables(variables: Mapping[str, str], where: str) -> dict[str, Directive]:
    """Read the options that variables set, by name of the option.

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
    """Combine a script's options, those set by variables, and those of the command line.

    A variable has no effect if it gives memory in another way than an option does, or threads in addition to
    ``--hint``.
    """
    options = of_variables(variables, where)
    if any(name in own or name in above for name in MEMORY):
        options = {
            name: option for name, option in options.items() if name not in MEMORY or name in own or name in above
        }
    if "hint" in own or "hint" in above:
        options.pop("threads-per-core", None)
    return by_name([*own.values(), *options.values(), *above.values()])


def _is_on(value: str) -> bool:
    return value in _ON or value.strip("0").isdigit()

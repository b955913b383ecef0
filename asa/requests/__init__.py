"""Requests: the options of sbatch in which a stage asks for its size, and the totals that they amount to.

A *request* is the options of sbatch that give a job's size: tasks, cores, nodes, memory and GPUs. It is passed to Slurm
unchanged. What strategies, forecasts and simulations need to know is computed from it. These values replace the request
only if the job has another shape: it runs several stages or a list of tasks, or a strategy chose its width.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from asa.errors import InputError
from asa.units import parse_memory

from .directives import Directive
from .options import marked, name_of
from .sizes import COUNTED, SIZES, Needs, read_needs

__all__ = ["COUNTED", "SIZES", "Needs", "come_to", "marked", "min_nodes", "name_of", "with_memory", "without_size"]

_MIB: Final = 1 << 20
_HINT: Final = "Write options of sbatch that say its size, each as --name=value."


def without_size(options: Iterable[str]) -> tuple[str, ...]:
    """Return the options that do not concern a job's size.

    Examples
    --------
    >>> without_size(["--gres=gpu:2", "--constraint=fast"])
    ('--constraint=fast',)
    """
    return tuple(option for option in options if name_of(option) not in SIZES)


@lru_cache(maxsize=4096)
def come_to(request: tuple[str, ...], options: tuple[str, ...] = ()) -> Needs:
    """Compute the totals of a request.

    `options`: further options for Slurm, some of which change what a request means.
    Raises `InputError`: one is no size option of sbatch, or has a value that sbatch refuses.

    Examples
    --------
    >>> needs = come_to(("--nodes=2", "--ntasks-per-node=4", "--mem=8G"))
    >>> needs.cores, needs.nodes, needs.memory_bytes >> 30
    (8, 2, 16)
    """
    given = {directive.name: directive for directive in map(_read, (*request, *without_size(options)))}
    if option := next((name for name in map(name_of, request) if name not in SIZES), ""):
        raise InputError(f"--{option} does not say how large a job is", hint=f"Write it into `options`. {_HINT}")
    return read_needs(given, lambda *_: None)


def _read(option: str) -> Directive:
    name, equals, value = option.removeprefix("--").partition("=")
    if not option.startswith("--"):
        raise InputError(f"{option!r} is no option as it must be written", hint=_HINT)
    return Directive(name, value if equals else None, "")


def with_memory(request: tuple[str, ...], factor: float) -> tuple[str, ...]:
    """Ask for more memory, with the options that were used.

    Examples
    --------
    >>> with_memory(("--ntasks=4", "--mem-per-cpu=1000M"), 1.5)
    ('--ntasks=4', '--mem-per-cpu=1500M')
    """
    return tuple(_larger(option, factor) if name_of(option) in marked("memory") else option for option in request)


def _larger(option: str, factor: float) -> str:
    name, _, value = option.partition("=")
    # rounded down: what all cores have together may be all that a node has
    return f"{name}={max(round(parse_memory(value) * factor) // _MIB, 1)}M"


def min_nodes(request: tuple[str, ...] | None) -> int:
    """Return the lower bound of a job's nodes; 0 if its request has none.

    Examples
    --------
    >>> min_nodes(("--nodes=2-4",)), min_nodes(("--ntasks=8",)), min_nodes(None)
    (2, 0, 0)
    """
    return come_to(request).nodes if request is not None else 0

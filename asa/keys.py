"""The keys of a stage that have a single value, each described once: type, bounds, description.

Stages, jobs and Slurm's options take these fields from here. The description also determines how a workflow file is
read, checked and written, its JSON schema, the arguments in Python, what is read from a batch script, what stages in
one job need together, and which cannot share one. Keys of stages alone, of legs and of preparations are described with
their fields in `asa.workflow`, `asa.continuation` and `asa.preparation`. Keys from which several fields follow (cores,
walltime, retries ...) are in `asa.spec.keys`.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import timedelta
from functools import cache
from numbers import Real
from operator import attrgetter
from typing import Any, Final, Literal, TypedDict

from asa.core.late import dataclass
from asa.core.python import called
from asa.errors import InputError
from asa.requests.options import marked
from asa.units import parse_memory, parse_storage

MAX_COUNT: Final = 20_000_000
"""Upper bound of a stage's cores, nodes or GPUs: no machine has more."""
_MAX_BYTES: Final = 1 << 60


class _Short(reprlib.Repr):
    """Shows values in short; of a command that calls a Python function, the function."""

    def repr_str(self, x: str, level: int) -> str:
        """Show a text."""
        function = called(x)
        return f"<{function}(...)>" if function else super().repr_str(x, level)


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxtuple = 4
_LITTLE_MEMORY_BYTES: Final = 32 << 20  # as much as a shell needs that starts a Python program
_MAX_NICE: Final = 2_147_483_645  # Slurm's limit

_NUMBER: Final = (Real, "a number")
_TYPES: Final[Mapping[str, tuple[type, str]]] = {
    **dict.fromkeys(("count", "number", "memory", "storage"), _NUMBER),
    **dict.fromkeys(("text", "output", "choice"), (str, "a text")),
    "flag": (bool, "True or False"),
}

Kind = Literal[
    "count",
    "number",
    "memory",
    "storage",
    "flag",
    "text",
    "output",
    "choice",
    "names",
    "paths",
    "files",
    "options",
    "pairs",
    "patience",
    "amount",
    "jobs",
    "own",
    "path",
    "lines",
    "widths",
    "partitions",
    "times",
    "expectation",
    "scaling",
    "retries",
    "factor",
]
"""The notation of a value.

`memory`: in MiB if it has no unit; `storage`: with a unit; `names`: one text or several; `paths`: a list, perhaps
empty; `files`: one path or several; `output`: a path with patterns of Slurm; `own`: as the key's `Notation` says;
`lines`: a list of commands; `widths`, `times`: one value, or one for each of several shapes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """The notation of values of a special type, in files and in Python."""

    read: Callable[[Any], Any]  # raises `InputError`
    given: tuple[type, ...]  # the types that Python accepts for such values
    words: str  # these types, for messages
    pattern: str  # of their text
    others: tuple[Mapping[str, Any], ...] = ()  # JSON schemas of further forms that a file may use
    write: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The description of a key."""

    kind: Kind
    description: str
    examples: Sequence[Any]
    name: str = ""  # in a workflow file and in Python; the name of its field if empty
    label: str = ""  # the counted things, for messages; its name if empty
    min_value: int = 0
    max_value: int = MAX_COUNT
    choices: tuple[str, ...] = ()
    option: str = ""  # the equivalent option of sbatch, without dashes; empty if there is none
    of_bare: int | str = ""  # the option's value if it is given without one
    notation: Notation | None = None  # if its values have a special type
    # what was probably not meant in a value, and what to do
    unlikely: Callable[[Any], tuple[str, str] | None] | None = None
    field: str = ""
    default: Any = None

    @property
    def is_amount(self) -> bool:
        """Whether stages that run at the same time need the sum."""
        return self.kind in {"count", "memory", "storage", "flag"}

    @property
    def is_target(self) -> bool:
        """Whether the key is part of a job's target: if one job to a target is deferred, all may be."""
        return self.option in marked("target")

    @property
    def parse(self) -> Callable[[str], int]:
        """Return the function that reads an amount in bytes from text."""
        return parse_storage if self.kind == "storage" else parse_memory

    def of_option(self, value: str) -> Any:
        """Read a value of its option; empty for the option without one.

        Raises `InputError`: the value is not a number where it should be one.

        Examples
        --------
        >>> next(key for key in TERMS if key.name == "nice").of_option("")
        100
        """
        if self.notation is not None:
            return self.notation.read(value)
        if self.kind != "number" or not value:
            return value or self.of_bare
        try:
            return int(value)
        except ValueError as error:
            raise InputError(f"--{self.option}={value} is no whole number", hint="Write a whole number.") from error

    def as_option(self, value: object) -> str:
        """Write a value as an option of sbatch.

        Examples
        --------
        >>> next(key for key in OF_JOBS if key.name == "nice").as_option(100)
        '--nice=100'
        """
        return f"--{self.option}={value}"


def described(kind: Kind, description: str, examples: Sequence[Any], *, default: Any, **more: Any) -> Any:
    """Make a field of a dataclass that is a key; `more`: further fields of `Key`."""
    return field(default=default, metadata={"key": Key(kind=kind, description=description, examples=examples, **more)})


def _hardly_enough(memory_bytes: int) -> tuple[str, str] | None:
    """Warn that a bare number was probably meant as gigabytes."""
    if not 0 < memory_bytes < _LITTLE_MEMORY_BYTES:
        return None
    mib = memory_bytes // 2**20
    hint = f'A number without a unit is MiB, as in Slurm: memory = "{mib}G" for gigabytes.'
    return f"memory of {mib} MiB is hardly enough for a shell", hint


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobKeys:
    """The requests of a stage, and so of its job, in addition to size and time; 0 and empty mean none."""

    memory_bytes: int = described(
        "memory",
        "Memory of the whole stage; a number without a unit is MiB, units are powers of 1024.",
        ["4G", "512M"],
        name="memory",
        label="bytes of memory",
        max_value=_MAX_BYTES,
        unlikely=_hardly_enough,
        default=0,
    )
    gpus: int = described(
        "count",
        "GPUs of the whole stage.",
        [4],
        default=0,
    )
    burst_buffer_bytes: int = described(
        "storage",
        "Burst buffer that it needs, which is fast storage while it runs, where the machine has one; as memory, with a "
        "unit.",
        ["500G", "20T"],
        name="burst_buffer",
        label="bytes of burst buffer",
        max_value=_MAX_BYTES,
        default=0,
    )
    exclusive: bool = described(
        "flag",
        "No other job runs on its nodes. All cores of the nodes are charged; its tasks use those that it asks for.",
        [True],
        max_value=1,
        default=False,
    )
    account: str = described(
        "text",
        "Account that is charged; by default the site's.",
        ["proj-42"],
        option="account",
        default="",
    )
    reservation: str = described(
        "text",
        "Reservation on whose nodes it runs; Slurm only.",
        ["workshop"],
        option="reservation",
        default="",
    )
    nice: int = described(
        "number",
        "By how much the priority of its job is lowered, so that your other jobs go first; Slurm only.",
        [100],
        option="nice",
        of_bare=100,
        min_value=-_MAX_NICE,
        max_value=_MAX_NICE,
        default=0,
    )

    def __repr__(self) -> str:
        """Show the values that differ from their defaults, the class's own fields first."""
        shown = sorted(
            (field for field in fields(self) if field.repr), key=lambda field: field.kw_only and "key" in field.metadata
        )
        values = ((field.name, getattr(self, field.name), field.default) for field in shown)
        return f"{type(self).__name__}({', '.join(f'{n}={_SHORT.repr(v)}' for n, v, usual in values if v != usual)})"

    def allocated(self, cores: int, nodes: int, cores_per_node: int) -> int:
        """Count the cores allocated for a request of cores, nodes or both; 0 for what is not given."""
        cores = max(cores, nodes * cores_per_node)
        return -(-cores // cores_per_node) * cores_per_node if self.exclusive and cores_per_node else cores


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StageKeys(JobKeys):
    """Further plain values of a stage; see `asa.Stage`."""

    after_any: tuple[str, ...] = described(
        "names",
        "Those of the stages in `after` that only have to have ended, in whatever way: their failure does not keep it "
        "from running. `when` is about the others.",
        ["probe", ["probe", "tidy"]],
        default=(),
    )
    after_start: tuple[str, ...] = described(
        "names",
        "Those of the stages in `after` that only have to have begun, `start_delay` ago; or to have ended.",
        ["server"],
        default=(),
    )
    start_delay_s: float = described(
        "patience",
        "How long those in `after_start` must have run, if they have not ended before.",
        ["5min"],
        name="start_delay",
        default=0.0,
    )
    after_matching: tuple[str, ...] = described(
        "names",
        "Those of the job arrays in `after` of which each element of this array needs only the element of the same "
        "number to have completed.",
        ["align"],
        default=(),
    )
    options: tuple[str, ...] = described(
        "options",
        "Further options of sbatch, each beginning with two dashes.",
        [["--constraint=haswell"]],
        default=(),
    )
    environment: tuple[tuple[str, str], ...] = described(
        "pairs",
        "Environment variables of its commands.",
        [{"OMP_NUM_THREADS": "4"}],
        default=(),
    )
    secrets: tuple[str, ...] = described(
        "names",
        "Variables of your shell that its commands need although they hold secrets, by name. Others go on "
        "to jobs by themselves, secrets only to the jobs of stages that ask for them.",
        ["HF_TOKEN", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]],
        default=(),
    )
    inputs: tuple[str, ...] = described(
        "paths",
        "Input files: paths relative to where commands run, with * ? [], which must exist and not be "
        "empty when it starts.",
        [["raw/*.fits"]],
        default=(),
    )
    outputs: tuple[str, ...] = described(
        "paths",
        "Output files, likewise, which must exist and not be empty when it has ended.",
        [["mosaic.fits"]],
        default=(),
    )
    stdout: str = described(
        "output",
        "File in which what it prints is found, too: a path relative to where commands run, with Slurm's patterns: %j "
        "the job, %A and %a the array and the element, %x the stage, %N the node, %u the user. Its errors are in the "
        "same file unless `stderr` has one.",
        ["logs/%x-%j.out"],
        option="output",
        default="",
    )
    stderr: str = described(
        "output",
        "File in which its errors are found, too, likewise.",
        ["logs/%x-%j.err"],
        option="error",
        default="",
    )
    input_patience_s: float | None = described(
        "patience",
        "For how long inputs that are missing or empty are looked for before it fails, and outputs "
        "likewise, since a file may be seen on another node up to a minute later; by default the site's, else 1min. "
        "It counts into the walltime, and is no longer than half of it.",
        ["1min", "10s"],
        name="input_patience",
        max_value=3600,
        default=None,
    )
    out_of_memory: Literal["fail", "ignore"] = described(
        "choice",
        "Whether it has failed if a process of it was killed because memory ran out, though its "
        "command exits with 0, as a pipe may: fail, the default, or ignore.",
        ["ignore"],
        choices=("fail", "ignore"),
        label="memory that runs out",
        default="fail",
    )
    local: bool = described(
        "flag",
        "Run it on the client's computer instead of in the queue; for small steps. Cores and walltime may be left out.",
        [True],
        default=False,
    )
    comment: str = described(
        "text",
        "What people see of it beside its name: in the comment of its job, where `squeue -O Comment` shows it, and in "
        "`asa status` and `asa explain`.",
        ["align sample=B"],
        default="",
    )
    input_size: float | None = described(
        "amount",
        "The size of its input, in any unit; run times learned at other sizes are scaled or kept apart.",
        [2075259],
        default=None,
    )


Duration = str | float | timedelta
"""Seconds, or text such as ``"40min"`` or ``"1:30:00"``."""


class GivenKeys(TypedDict, total=False):
    """The same as Python's arguments: amounts in bytes or as text such as ``"4G"``, times in seconds or as text."""

    memory: int | str
    gpus: int
    burst_buffer: int | str
    exclusive: bool
    account: str
    reservation: str
    nice: int
    after_any: str | Iterable[str]
    after_start: str | Iterable[str]
    start_delay: Duration
    after_matching: str | Iterable[str]
    options: str | Iterable[str]
    environment: Mapping[str, str]
    secrets: str | Iterable[str]
    inputs: str | Iterable[str]
    outputs: str | Iterable[str]
    stdout: str
    stderr: str
    input_patience: Duration
    out_of_memory: Literal["fail", "ignore"]
    local: bool
    comment: str
    input_size: float


@cache
def keys_of(kind: type) -> tuple[Key, ...]:
    """List the plain keys among the fields of a class, in the order of the fields."""
    described = ((field, field.metadata.get("key")) for field in fields(kind))
    return tuple(
        replace(
            key, field=field.name, default=field.default, name=key.name or field.name, label=key.label or field.name
        )
        for field, key in described
        if key is not None
    )


def with_keys(text: str | None, keys: Mapping[str, Key]) -> str:
    """Return a class's docstring with the descriptions of keys, by the names that they have there, for ``help``."""
    lines = (line for name, key in keys.items() for line in (name, f"    {key.description}"))
    return "\n".join([inspect.cleandoc(text or ""), "", "Keys", "----", *lines])


def values_of(one: object) -> Iterator[tuple[Key, Any]]:
    """Return the keys of an object with their values."""
    kind: type = type(one)
    return ((key, getattr(one, key.field)) for key in keys_of(kind))


OF_JOBS: Final = keys_of(JobKeys)
"""The keys that a job asks for in addition to size and time."""
RESOURCES: Final = tuple(key for key in OF_JOBS if key.is_amount)
"""Those of them that a machine may run out of."""
TERMS: Final = tuple(key for key in OF_JOBS if not key.is_amount)
"""Those of them that have one value for the batch system, and cannot be added up."""
_NAMES: Final = tuple(key.field for key in OF_JOBS)
_VALUES: Final = attrgetter(*_NAMES)


def asked(keys: JobKeys) -> dict[str, Any]:
    """Return the values that a stage or a job requests, by field.

    Examples
    --------
    >>> {name: value for name, value in asked(JobKeys(gpus=2, account="astro")).items() if value}
    {'gpus': 2, 'account': 'astro'}
    """
    return dict(zip(_NAMES, _VALUES(keys), strict=True))


def terms_of(keys: JobKeys) -> dict[str, Any]:
    """Return the values that cannot be added up, by field.

    Examples
    --------
    >>> terms = terms_of(JobKeys(gpus=2, account="astro"))
    >>> terms["account"], terms["nice"], "gpus" in terms
    ('astro', 0, False)
    """
    return {key.field: getattr(keys, key.field) for key in TERMS}


def as_options(keys: JobKeys) -> tuple[str, ...]:
    """Write the values that cannot be added up as options of sbatch.

    Examples
    --------
    >>> as_options(JobKeys(gpus=2, account="astro", nice=7))
    ('--account=astro', '--nice=7')
    """
    return tuple(key.as_option(value) for key in TERMS if (value := getattr(keys, key.field)))


def divided(keys: JobKeys, count: int) -> dict[str, Any]:
    """Divide a request among `count` jobs, by field; amounts are rounded up.

    Examples
    --------
    >>> [divided(JobKeys(memory_bytes=10, gpus=3, nice=7), 2)[name] for name in ("memory_bytes", "gpus", "nice")]
    [5, 2, 7]
    """
    return {key.field: _times(key, getattr(keys, key.field), lambda amount: -(-amount // count)) for key in OF_JOBS}


def multiplied(keys: JobKeys, count: int) -> dict[str, Any]:
    """Return the total of `count` equal requests, by field.

    Examples
    --------
    >>> [multiplied(JobKeys(memory_bytes=10, exclusive=True), 3)[name] for name in ("memory_bytes", "exclusive")]
    [30, True]
    """
    return {key.field: _times(key, getattr(keys, key.field), lambda amount: amount * count) for key in OF_JOBS}


def _times(key: Key, value: Any, change: Callable[[int], int]) -> Any:
    return change(value) if key.is_amount and key.kind != "flag" else value


def together(stages: Iterable[JobKeys]) -> JobKeys:
    """Return the request of stages that run at the same time in one job: the sum; exclusive nodes if one asks for them.

    Examples
    --------
    >>> together([JobKeys(memory_bytes=4), JobKeys(memory_bytes=10, account="astro")])
    JobKeys(memory_bytes=14, account='astro')
    """
    return JobKeys(**_merged(stages, sum))


def shared_by(stages: Iterable[JobKeys]) -> dict[str, Any]:
    """Return the request of stages that run one after the other in one job: the maximum of each resource.

    For values that cannot be added up, such as the account, the first given value; stages with different values share
    no job (see `contradiction`).

    Examples
    --------
    >>> shared = shared_by([JobKeys(gpus=2), JobKeys(memory_bytes=10, account="astro")])
    >>> shared["gpus"], shared["memory_bytes"], shared["account"]
    (2, 10, 'astro')
    """
    return _merged(stages, max)


def _merged(stages: Iterable[JobKeys], of_amounts: Callable[[Iterable[Any]], Any]) -> dict[str, Any]:
    rows = list(map(_VALUES, stages))
    if len(rows) == 1 or (of_amounts is max and rows.count(rows[0]) == len(rows)):  # most are; forecasts ask often
        return dict(zip(_NAMES, rows[0], strict=True))
    merged: dict[str, Any] = {}
    for key, values in zip(OF_JOBS, zip(*rows, strict=True), strict=True):
        if key.kind == "flag":
            merged[key.field] = any(values)
        elif key.is_amount:
            merged[key.field] = of_amounts(values)
        else:
            merged[key.field] = next(filter(None, values), key.default)
    return merged


def trouble(keys: StageKeys) -> tuple[str, str] | None:
    """Return what is wrong with the values of a stage's plain keys, and what to do; None if nothing is.

    Examples
    --------
    >>> trouble(StageKeys(gpus=-1)), trouble(StageKeys(nice=5))
    (('asks for -1 gpus', 'Ask for 0 or more.'), None)
    >>> trouble(StageKeys(account=7))
    ('has account = 7', 'Give a text.')
    """
    given = {option.partition("=")[0] for option in keys.options}
    for key, value in values_of(keys):
        if words := _type_missed(key, value):
            return f"has {key.field} = {_SHORT.repr(value)}", f"Give {words}."
        if key.is_amount and not key.min_value <= value <= key.max_value:
            bound = f"{key.min_value} or more" if value < key.min_value else f"{key.max_value} or fewer"
            return f"asks for {value} {key.label}", f"Ask for {bound}."
        if key.kind == "number" and not key.min_value <= value <= key.max_value:
            return f"has {key.name} = {value}", f"Give {key.min_value} to {key.max_value}."
        if key.choices and value not in key.choices:
            return f"says {value!r} of {key.label}", f"Give one of {', '.join(key.choices)}."
        if key.option and value and f"--{key.option}" in given:
            return f"has {key.name} = {value!r} and --{key.option} among its options", "Leave one of them out."
    return None


def _type_missed(key: Key, value: object) -> str:
    """Name the type that a key's values have if a value has another one."""
    kind, words = _TYPES.get(key.kind, (object, ""))
    return "" if isinstance(value, kind) and not (kind is Real and isinstance(value, bool)) else words


def contradiction(stages: Sequence[JobKeys]) -> tuple[str, list[str]] | None:
    """Name, in the plural, a key with values that cannot share a job, and the values; None if there is none.

    A stage that does not set a key gets what the site gives it, and not the value of another stage.

    Examples
    --------
    >>> contradiction([JobKeys(account="a"), JobKeys(account="b")])
    ('accounts', ['a', 'b'])
    >>> contradiction([JobKeys(account="a"), JobKeys(memory_bytes=1)])
    ('accounts', ["the site's own", 'a'])
    >>> contradiction([JobKeys(account="a"), JobKeys(account="a", memory_bytes=1)])
    """
    for key in TERMS:
        values = sorted({getattr(stage, key.field) for stage in stages})
        said = [str(value) if value else "the site's own" for value in values]
        if len(said) > 1:
            return f"{key.name}s" if key.kind == "text" else f"values of {key.name}", said
    return None


def named(keys: JobKeys) -> Mapping[str, str]:
    """Return the values, besides the partition, that must agree for jobs to be deferred together.

    Examples
    --------
    >>> named(JobKeys(account="astro", nice=10))
    {'account': 'astro'}
    """
    return {key.name: value for key in TERMS if key.is_target and (value := getattr(keys, key.field))}

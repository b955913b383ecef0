"""Evidence in a variable's value alone: that it is an ordinary setting, or that it was drawn at random."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from asa.core.patterns import pattern

_SPLIT = pattern(r"[\s,;:=|+()\[\]{}\"'<>@]+")
_UNIT = (
    r"(?:[kKmMgGtTpPnuµ]?(?:i?[bB]|[hH]z|s|m|eV|Pa|W|J|g|l)?|h|hPa|d|min|sec|hr|yr|mon|K|C|F|Ry|Ha|rad|deg|px|pt|x|%|°"
    r"|nodes?|cores?|hours?|days?)"
)
_NUMBER = pattern(
    r"[-+]?(?:[0-9]{1,7}(?:\.[0-9]{0,17})?|\.[0-9]{1,17})(?:[eEdD][-+]?[0-9]{1,3})?"
    + _UNIT
    # a range, a fraction, or numbers as in 4x4
    + r"(?:(?:-|\.\.|x|/|\^)[-+]?[0-9]{1,5}"
    + _UNIT
    + r"){0,4}"
)
_VERSION = pattern(r"[vVr]?[0-9]{1,4}(?:[._][0-9]{1,4}){1,3}(?:[-._]?(?:rc|alpha|beta|dev|post|a|b|p)[0-9]{0,3})?")
_DATE = pattern(r"(?:1[6-9]|20|21)[0-9]{2}-?[0-1][0-9](?:-?[0-3][0-9](?:[T_-]?[0-2][0-9](?:[0-5][0-9]){0,2}Z?)?)?")
_OPTION = pattern(r"--?[A-Za-z][A-Za-z_.-]{0,30}")
_LETTERED = pattern(r"-[A-Za-z]{1,3}(?P<value>[0-9].{0,9})")  # as -O3, -Xmx4g
_GIVES_AWAY = pattern(r"(?:^|\s)(?:-[pu](?!\w*[/.=])|--?\w*(?:pass|user|token|secret|key|auth|cred))", re.IGNORECASE)
_PLACE = pattern(r"(?:file://)?/[\w./+,@%~ -]*")
_AT_A_HOST = pattern(r"[0-9]{2,5}@[A-Za-z][\w.-]{0,60}")
_RUN = pattern(r"[A-Za-z0-9]+")
_TURN = pattern(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WITHOUT_VOWELS = pattern(r"[b-df-hj-np-tv-xz]{7}", re.IGNORECASE)
_CODE = pattern(r"[A-Za-z0-9]{1,7}(?:[._/-][A-Za-z0-9]{1,7})?")
_PROGRAM = pattern(r"[\w./+-]*\.(?:x|exe|py|sh|pl|R|jl|out)(?:\s.*)?|(?:srun|mpirun|mpiexec|aprun|jsrun)\s.*")
_FILE = pattern(r"/?(?:[A-Za-z][\w-]{0,40}/){0,8}[A-Za-z][\w-]{0,40}(?:\.[A-Za-z][A-Za-z0-9]{0,5}){1,2}")
_UUID = pattern(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TAGGED = pattern(
    r"[A-Za-z]{2,10}(?:[_-][A-Za-z0-9]{1,8}){0,2}[_-](?P<body>[0-9A-Za-z]{30,})"
    r"(?:[_-][0-9A-Za-z]{1,64})?"
)
_OF_SUMS = pattern(
    r"(?:sha|md|git|commit|run|exp|job|id|uuid|guid|env|build|hash|digest|etag|crc)[0-9]*[_-]", re.IGNORECASE
)
_WHOLE = pattern(r"[A-Za-z0-9][A-Za-z0-9+/_~.=-]*")
_MAX_LENGTH, _MAX_DIGITS, _MAX_DIGITS_OF_A_VARIANT = 32768, 9, 4
_MIN_DRAWN, _MIN_TURNS, _MIN_TURNS_A_LETTER = 8, 3, 0.2
_MIN_WHOLE, _MAX_WHOLE, _MIN_RUN, _MIN_TURNS_OF_WHOLE = 20, 512, 10, 0.3
_MAX_CODE = 10

_WORDS = """
    true false yes no on off none null nil t f y n auto automatic default any all some both first last always never ask
    enabled disabled enable disable required optional force strict loose safe unsafe full partial only
    fast slow small medium large big little native swap high low normal max min mean median sum total average
    local remote global shared private public online offline dryrun internal external system user host hybrid
    debug release verbose quiet silent info warn warning error fatal critical trace notice production prod test dev
    static dynamic guided runtime close spread master primary compact scatter balanced block cyclic none socket sockets
    core cores thread threads node nodes numa rank ranks process processes proc single multiple multi double half
    serial parallel sequential concurrent funneled serialized active passive turnaround throughput
    cpu gpu tpu cuda rocm hip sycl opencl metal vulkan openmp openacc mpi smp mps nvidia amd intel cray hpe apple
    gcc gnu gxx gfortran icc icx ifort ifx clang llvm nvhpc nvc pgi xl xlf flang cce aocc armclang oneapi
    openmpi mpich intelmpi impi mvapich mvapich2 psm psm2 psm3 pmi pmi1 pmi2 pmix ucx ofi verbs tcp shm self vader
    openib ib cxi efa nccl gloo mpt slurm pbs lsf ssh rsh fork spawn forkserver hydra
    json yaml yml toml csv tsv xml hdf5 netcdf nc zarr grib nifti png pdf svg ps eps html text txt binary ascii
    utf utf8 latin1 iso posix c en us de gb fr utc gmt cet local
    linux darwin x86 generic haswell skylake zen zen2 zen3 zen4 neoverse
    agg gtk qt tk cairo webagg wayland x11 xcb offscreen surfaceless egl osmesa
    int integer long short float double real complex bool fp16 fp32 fp64 bf16 tf32 f32 f64 i32 i64
    sync async blocking nonblocking lazy eager once append overwrite replace keep skip ignore include exclude
    pass fail ok done ready stop start begin end daily hourly monthly yearly annual
    endian convert unit readwrite readonly read write
    o0 o1 o2 o3 os oz og ofast std standard reference ref base control ctl historical
"""
_SETTINGS = frozenset(_WORDS.split())
"""Words that occur in the settings of programs, in which nobody can hide a secret."""


def is_ordinary(value: str, known: Collection[str] = ()) -> bool:
    """Whether a value consists only of paths, numbers, dates, versions, options and words of settings.

    `value`: the value of a variable.
    `known`: words that are public anyway, in lower case.

    Examples
    --------
    >>> [is_ordinary(value) for value in ("", "big;little:10-20", "-Xmx4g", "2024-01-31", "/usr:/usr/bin", "1055@host")]
    [True, True, True, True, True, True]
    >>> [is_ordinary(value) for value in ("hunter2", "12345678", "/nowhere/QmX2ZpL4vT", "-u me:word", "OpenFOAM")]
    [False, False, False, False, False]
    >>> is_ordinary("OpenFOAM", {"openfoam"})
    True
    """
    if len(value) > _MAX_LENGTH:
        return False
    if not value.strip() or are_places(value):
        return True
    if not value.isprintable() or gives_away(value):
        return False
    items = [item for item in _SPLIT.split(value) if item]
    return all(_is_item(item, known) for item in items) or bool(_AT_A_HOST.fullmatch(value))


def _is_item(item: str, known: Collection[str]) -> bool:
    if any(form.fullmatch(item) for form in (_VERSION, _DATE, _OPTION)):
        return True
    if _NUMBER.fullmatch(item):
        return "." in item or sum(character.isdigit() for character in item) <= _MAX_DIGITS
    if item.startswith("/") and _is_there(item):
        return True
    if (lettered := _LETTERED.fullmatch(item)) is not None:
        return _NUMBER.fullmatch(lettered["value"]) is not None
    words = [word.lower() for word in re.split(r"[-_./^*]+", item) if word]
    return item.lower() in known or all(word in _SETTINGS or _is_little(word) for word in words)


def _is_little(word: str) -> bool:
    """Whether a word is a single letter, or a number of few digits."""
    return (len(word) == 1 and word.isalnum()) or (word.isdigit() and len(word) <= _MAX_DIGITS_OF_A_VARIANT)


def are_places(value: str) -> bool:
    """Whether a value is a list of absolute paths, separated by colons, semicolons, commas or spaces.

    Of a path that does not exist (yet), the topmost folder must exist, and no part may look random.
    """
    if not value.startswith(("/", "file:///")):
        return False
    if _PLACE.fullmatch(value) and _is_there(value):
        return True
    parts = [part for part in re.split(r"[:;,\s]+", value.removeprefix("file://")) if part]
    return all(part.startswith("/") and (_is_there(part) or _may_be_there(part)) for part in parts)


def _may_be_there(path: str) -> bool:
    top, _, rest = path[1:].partition("/")
    return bool(top and rest) and _is_there(f"/{top}") and not looks_drawn(path)


def open_words(variables: Collection[str]) -> set[str]:
    """Return the lower-case words of those values that are existing paths: such words are public."""
    words: set[str] = set()
    for value in variables:
        for part in re.split(r"[:;,\s]+", value) if value.startswith("/") and len(value) <= _MAX_LENGTH else ():
            if part.startswith("/") and _is_there(part):
                names = [name for name in part.lower().split("/") if name]
                words.update(names, (word for name in names for word in re.split(r"[-_.]", name)))
    return {word for word in words if len(word) > 1}


def gives_away(value: str) -> bool:
    """Whether options of a command name a user or a password, as ``-u me:word`` or ``--password`` do."""
    return _GIVES_AWAY.search(value) is not None


def looks_drawn(value: str) -> bool:
    """Whether a part of a value mixes small letters, capitals and digits like random text, not like words.

    Examples
    --------
    >>> [looks_drawn(value) for value in ("Xk3vQ9rT2m", "wJalr9XUt7nF", "3f2a9c81d7e6", "2718281828", "pfbxkqzwt")]
    [True, True, True, True, True]
    >>> [looks_drawn(value) for value in ("OpenFOAM-v2306", "expandable_segments:True", "20240131", "ERA5_T42L31")]
    [False, False, False, False]
    """
    return any(_is_drawn(run) for run in _RUN.findall(value[:_MAX_LENGTH]))


def _is_drawn(run: str) -> bool:
    if len(run) < _MIN_DRAWN or _DATE.fullmatch(run):
        return False
    turns = sum(1 for _ in _TURN.finditer(run))
    if turns >= _MIN_TURNS and turns >= _MIN_TURNS_A_LETTER * len(run):
        return True
    return run.isdigit() or _WITHOUT_VOWELS.search(run) is not None


def is_drawn_whole(value: str) -> bool:
    """Whether a value is one long random text of small letters, capitals and digits, with little else in it.

    This includes such a text after a prefix, as in services' tokens. Hexadecimal digits alone do not count: they are
    checksums, commits and identities of devices.

    Examples
    --------
    >>> [is_drawn_whole(value) for value in ("wJ8lrXu9nFE4I/K7MD1NG/bPx2fiC5", "ab_9Zk3vQ9rT2mYw8LpX4sB1c")]
    [True, True]
    >>> [is_drawn_whole(value) for value in ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "ACCESS-CM2_r1i1p1f1_gn")]
    [False, False]
    """
    if not _MIN_WHOLE <= len(value) <= _MAX_WHOLE or _WHOLE.fullmatch(value) is None:
        return False
    if (tagged := _TAGGED.fullmatch(value)) is not None and not _OF_SUMS.match(value):
        body = tagged["body"]
        return any(map(str.isdigit, body)) and any(map(str.isalpha, body))
    runs = _RUN.findall(_UUID.sub("", value))
    letters = "".join(runs)
    kinds = (str.islower, str.isupper, str.isdigit)
    if max(map(len, runs), default=0) < _MIN_RUN or not all(any(map(kind, letters)) for kind in kinds):
        return False
    return sum(len(_TURN.findall(run)) for run in runs) >= _MIN_TURNS_OF_WHOLE * len(letters)


def is_short_code(value: str) -> bool:
    """Whether a value is a short name of a place, a case or a variable, as ``EU``, ``DE-Tha`` or ``r1i1p1``."""
    return len(value) <= _MAX_CODE and _CODE.fullmatch(value) is not None


def is_program_or_file(value: str) -> bool:
    """Whether a value calls a program, or is a file's path made of words, with a suffix."""
    if looks_drawn(value):
        return False
    return _PROGRAM.fullmatch(value) is not None or _FILE.fullmatch(value) is not None


def _is_there(path: str) -> bool:
    try:
        return Path(path.removeprefix("file://")).exists()
    except (OSError, ValueError):
        return False

"""Which variables of a user's shell hold secrets, and which are kept: one rule for whatever writes or hands on any.

Secrets go on to nobody who has not asked for them by name. And nobody can list all that holds a secret: so what is
written to the disk, for what runs later in the shell's place, is what is on a list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

from asa.errors import InputError

KEEPS = "ASA_KEEP"
"""Names and patterns, with commas between them, that are kept beside, as in ``DATA,MYAPP_*``; no secrets."""

_LIST = (
    # who and where
    "HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMP|TEMP|SCRATCH|WORK|PROJECT|PROJECTS|STORE|CLUSTER",
    "XDG_[A-Z_]+|DBUS_SESSION_BUS_ADDRESS|SSH_AUTH_SOCK|KRB5CCNAME|(HTTPS?|FTP|NO|ALL)_PROXY",
    # where programs, libraries and data are
    r"\w*PATH|\w+_(DIRS?|HOME|ROOT|PREFIX|BASE|BIN|LIBS?|INC|INCLUDE|LIBRARY|CACHE|FOLDER|VERSION)|\w*DIR",
    "LD_[A-Z_]+|CC|CXX|FC|F77|F90|MPI(CC|CXX|FC)|[A-Z]*FLAGS|LIBS|CLASSPATH|[A-Z]*LM_LICENSE_FILE",
    r"(PYTHON|PERL|JULIA_|JAVA_|R_|MATLAB|CONDA_|MAMBA_|_CE_|VIRTUAL_|PYENV_|SPACK_|EB|NIX_|GUIX_)\w*",
    r"(MODULE|LMOD_|__LMOD_|__MODULES_|_ModuleTable)\w*|LOADEDMODULES|_LMFILES_\w*|BASH_FUNC_\w+(%%|\(\))|(BASH_)?ENV",
    r"(APPTAINER|SINGULARITY)_\w+",
    # how they run in parallel
    r"(OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|NUMBA|NUMEXPR|TBB|OMPI|PRTE|PMIX|I_MPI|MPICH|MV2|MVAPICH|UCX|FI|PSM2?)_\w+",
    r"(NCCL|RCCL|HCOLL|CUDA|NVIDIA|NV|ROCM?|ROCR|HIP|HSA|GPU|ONEAPI|SYCL|ZE|OCL|CRAY|CRAYPE|PE|ATP)_\w+|CRAY\w*",
    # batch systems, and this program
    r"(SLURM|SBATCH|SQUEUE|SACCT|SINFO|SCANCEL|ASA|DASK|NUMEXPR|MPL)_\w+|MPLBACKEND|SOURCE_DATE_EPOCH",
)
_KEPT = re.compile("|".join(_LIST), re.IGNORECASE)
_OF_THIS_SHELL = re.compile(
    r"_|SHLVL|PWD|OLDPWD|SLURM_(JOB|STEP|TASK|NODE|CPUS|MEM|PROC|LOCAL|GTIDS)\w*"
    r"|TERM\w*|COLUMNS|LINES|PS[0-4]|PROMPT\w*|HIST\w+|LS_COLORS|LESS\w*|MAIL|SSH_(CLIENT|CONNECTION|TTY)|DISPLAY|XAUTHORITY"
    r"|WINDOWID|COLORTERM|EDITOR|VISUAL|PAGER|HOSTNAME|HOSTTYPE|OSTYPE|MACHTYPE|which_declare|TMUX\w*|STY|VTE_\w+|GPG_TTY"
)
"""Means nothing, or something else, where no one is logged in."""

# words of a name, at its end also in one with what is before it, as in PGPASSWORD
_SECRET = frozenset({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIAL", "JWT"})
_SECRET_ALONE = frozenset({"TOKENS", "SECRETS", "PASSWORDS", "PASS", "PWD", "PW", "CREDENTIALS", "COOKIE", "PAT"})
_KEY, _AUTH = frozenset({"KEY", "KEYS"}), "AUTH"
_NO_SECRET_KEY = frozenset({"PUBLIC", "LICENSE", "LICENCE", "SORT", "PARTITION", "PRIMARY", "GROUP", "CACHE", "HOST"})
_PLACE = frozenset({"FILE", "PATH", "DIR", "FOLDER", "HOME", "SOCK", "SOCKET", "URL", "URI", "CONFIG"})
_OF_NO_SECRET = re.compile(r"|[-+]?[0-9.]{1,7}|true|false|yes|no|on|off|none", re.IGNORECASE)
_VALUE = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,15}://[^/\s:@]*:[^/\s@]+@"  # a password in an address
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|^eyJ[\w-]+\.eyJ[\w-]+\."  # a JWT
    r"|^(gh[opsu]_|github_pat_|glpat-|hf_|xox[abps]-|sk-|pypi-|npm_)[\w-]{16,}$"
    r'|"auths?"\s*:',  # of registries of containers
    re.IGNORECASE,
)


def is_secret(name: str, value: str) -> bool:
    """Say whether a variable holds a secret, by the words of its name, or by what is unmistakable in its value.

    The place of a file is none, nor is a small number or a yes or no.

    Examples
    --------
    >>> [is_secret(*one) for one in (("HF_TOKEN", "hf_x"), ("PGPASSWORD", "x"), ("AWS_SECRET_ACCESS_KEY", "x"))]
    [True, True, True]
    >>> [is_secret(*one) for one in (("TOKENIZERS_PARALLELISM", "false"), ("MAX_TOKENS", "4096"), ("PATH", "/bin"))]
    [False, False, False]
    """
    if name.startswith("BASH_FUNC_"):
        return False
    return bool(_VALUE.search(value)) or (_sounds_secret(name) and not _is_harmless(name, value))


def secrets_of(variables: Mapping[str, str]) -> list[str]:
    """Name those that hold secrets."""
    return sorted(name for name, value in variables.items() if is_secret(name, value))


def asked(names: Iterable[str]) -> dict[str, str]:
    """Give the variables of this process that a job asks for by name, since secrets do not go on by themselves.

    Raises `InputError`: one is not set here, and the job would begin without it.
    """
    wanted = {name: os.environ.get(name) for name in names}
    if absent := [name for name, value in wanted.items() if value is None]:
        raise InputError(
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not set here, and a stage asks for it",
            where="secrets",
            hint=f"Set it, as by: export {absent[0]}=...; and go on. A client that cron, a timer or another computer "
            "begins has only what is set there.",
        )
    return {name: value for name, value in wanted.items() if value is not None}


def kept(variables: Mapping[str, str]) -> dict[str, str]:
    """Give those of a shell's variables that may be written down, for what is run later in its place.

    Examples
    --------
    >>> kept({"PATH": "/usr/bin", "SLURM_JWT": "ey.ey.x", "MY_THING": "1", "OTHER": "1", "ASA_KEEP": "MY_*"})
    {'PATH': '/usr/bin', 'MY_THING': '1', 'ASA_KEEP': 'MY_*'}
    """
    added = [name.strip() for name in variables.get(KEEPS, "").split(",")]
    return {
        name: value
        for name, value in variables.items()
        if (_KEPT.fullmatch(name) or any(fnmatchcase(name, pattern) for pattern in added))
        and not (_OF_THIS_SHELL.fullmatch(name) or is_secret(name, value))
    }


def left_out(variables: Mapping[str, str]) -> list[str]:
    """Name the variables that `kept` leaves out and that may have been wanted: no secrets, nothing of a terminal."""
    others = {name: value for name, value in variables.items() if not is_secret(name, value)}
    return sorted(name for name in others.keys() - kept(others).keys() if not _OF_THIS_SHELL.fullmatch(name))


def _sounds_secret(name: str) -> bool:
    words = [word for word in re.split(r"[^A-Z]+", name.upper()) if word]
    if any(word in _SECRET_ALONE or word.endswith(tuple(_SECRET)) for word in words):
        return True
    has_key = any(word in _KEY and before not in _NO_SECRET_KEY for before, word in pairwise(words))
    return has_key or words[-1:] == [_AUTH]


def _is_harmless(name: str, value: str) -> bool:
    if _OF_NO_SECRET.fullmatch(value):
        return True
    is_place = value.startswith(("/", "~", "./", "file:"))
    return is_place and (name.upper().rpartition("_")[2] in _PLACE or _is_there(value))


def _is_there(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False

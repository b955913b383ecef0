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

# The words of a name; those written in one, as in SSHPASS or SECRETKEY, are taken apart first.
_IN_ONE = re.compile(
    r"(?<=[A-Z])(PASSWORDS?|PASSWD|PSWD|PASSPHRASE|PASSCODE|PASS|PWD|SECRETS?|TOKENS?|CREDENTIALS?|JWT|AUTH)(?![A-Z])"
    r"|(?<=[A-Z]{2})PW(?![A-Z])"
    r"|(?<=API|SSH|APP)KEYS?(?![A-Z])|(?<=PASS|AUTH|USER|ROOT)KEYS?(?![A-Z])|(?<=CRYPT)KEYS?(?![A-Z])"
    r"|(?<=SECRET|MASTER|ACCESS|SHARED|DEPLOY)KEYS?(?![A-Z])|(?<=PRIVATE|ACCOUNT|SIGNING|SERVICE|RYPTION)KEYS?(?![A-Z])"
)


def _among(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PASSWORD = _among(
    "PASSWORD PASSWORDS PASSWD PSWD PASSPHRASE PASSCODE PASS PWD PW SECRET SECRETS CREDENTIAL CREDENTIALS CRED CREDS "
    "COOKIE COOKIES JWT OTP TOTP PSK BEARER"
)
_TOKEN, _KEY = _among("TOKEN TOKENS PAT"), _among("KEY KEYS")
_ONLY_LAST = {"AUTHORIZATION": "password", "AUTH": "token"}
_NOT_BEHIND = {
    "PASS": _among(
        "FIRST SECOND THIRD NEXT PREVIOUS CURRENT LAST INITIAL FINAL ONE TWO SINGLE DOUBLE MULTI N I NUM MAX MIN SUB "
        "HIGH LOW BAND ALL LONG SHORT FORWARD BACKWARD RENDER COM ENCOM BY SUR TRES OVER UNDER ASK"
    ),
    "PWD": _among("OLD"),
    "PW": _among("ECUT ENCUT CUTOFF QE ESPRESSO"),  # plane waves
    "TOKEN": _among("PAD BOS EOS MASK CLS SEP UNK START STOP END SPECIAL IMAGE"),
    "PAT": _among(
        "FILE FILENAME FNAME NAME PATH DATA INPUT OUTPUT DATE LINE IMAGE GLOB REGEX SEARCH GREP MATCH INCLUDE EXCLUDE"
    ),
    "KEY": _among(
        "PUBLIC PUB AUTHORIZED TRUSTED HOST LICENSE LICENCE SORT ORDER GROUP PARTITION SHARD ROUTING PRIMARY FOREIGN "
        "UNIQUE INDEX JOIN MERGE LOOKUP SEARCH DICT MAP HASH CACHE TABLE COLUMN ROW FIELD RECORD OBJECT EXPERIMENT "
        "DATASET SAMPLE STATION VARIABLE VAR FEATURE LABEL TARGET METRIC EVENT MESSAGE TIME DATE PRNG RNG COMPOSE HOT"
    ),
}
"""Behind these words a word means something else."""
_NOT_BEHIND |= {f"{word}S": _NOT_BEHIND[word] for word in ("TOKEN", "KEY")}
_ABOUT = _among(
    "TYPE NAME LENGTH LEN SIZE BITS COUNT NUMBER LIMIT BUDGET RATE INDEX COLUMN FIELD PREFIX SUFFIX FORMAT VERSION "
    "HEADER VAR ALGORITHM METHOD MODE POLICY PROVIDER BACKEND HELPER MANAGER ISSUER AUDIENCE SCOPE DOMAIN SERVER PORT "
    "EXPIRY TTL TIMEOUT LIFETIME ROUNDS PROMPT COMMAND CMD REQUIRE REQUIRED ENABLED DISABLED THROUGH FILTER"
)
"""As a name's last word: what it holds is about a secret."""
_PLACE = _among("FILE PATH DIR FOLDER HOME SOCK SOCKET URL URI CONFIG")
_FILE, _ADDRESS = _among("FILE PATH DIR FOLDER"), _among("URL URI ENDPOINT")
_OF_MPI = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_", "HYDRA_", "I_MPI_")
"""Names of settings of MPI, such as how its processes authenticate each other."""
_SWITCH = _among("USE ASK NO ALLOW REQUIRE NEED WITH HAS IS ENABLE DISABLE SKIP PROMPT SAVE")
_YES_OR_NO = re.compile(r"|true|false|yes|no|on|off|none", re.IGNORECASE)
_SMALL = re.compile(r"[-+]?[0-9.]{1,7}")
_AMOUNT = re.compile(r"[-+]?[0-9][0-9._, ]*(e[-+]?[0-9]+)?[kmgbt]?", re.IGNORECASE)
_MARK = re.compile(r"<[^<>]{1,30}>|\[[^][]{1,30}\]")
_METHOD = re.compile(
    r"munge|kerberos|krb5|gssapi|gsi|ssh|ssl|tls|x509|basic|digest|ntlm|negotiate|bearer|oauth2?|oidc|saml|jwt|iam|ldap|pam|sasl"
    r"|plain|md5|scram|token|password|publickey|key|anonymous|external|auto|native|slurm|google|github|gitlab",
    re.IGNORECASE,
)
_OF_SERVICES = (
    r"gh[oprsu]_[a-z0-9]{16,}|github_pat_\w{16,}|(glpat|gldt|nvapi|xai)-[\w-]{16,}|(hf|npm|gsk|r8)_[a-z0-9]{16,}|dckr_pat_[\w-]{16,}"
    r"|xox[abeps]-[\w-]{16,}|sk-((proj|ant|or|svcacct|admin)-[\w-]{16,}|[a-z0-9]{20,})|pypi-AgE[\w-]{16,}|(hvs|ya29|SG)\.[\w.-]{16,}"
    r"|(AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}|AGE-SECRET-KEY-\w+"
)
_VALUE = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,15}://[^/\s:@]*:[^/\s@]+@"  # a password in an address
    r"|://[0-9a-f]{32}@|[?&](sig|signature|X-Amz-Signature|token|access_token|api_?key|key|password)=[^&\s]"
    r"|://hooks\.slack\.com/services/\w|://discord(app)?\.com/api/webhooks/\w"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|^eyJ[\w-]+\.eyJ[\w-]+\."  # a JWT
    rf"|(^|://)({_OF_SERVICES})(@|$)"
    r"|(^|[;\s])(AccountKey|SharedAccess(Key|Signature)|password|passwd)\s*=\s*[^;\s]"  # to connect with
    r"|;\s*pwd\s*=\s*[^;\s]"
    r"|\bauthorization\s*[:=]\s*\S|\bBearer\s+[\w.~+/=-]{8,}|\bapi-key\s*[:=]\s*\S|\blogin\s+\S+\s+password\s+\S"
    r'|"auths?"\s*:'  # of registries of containers
    r'|"(client_secret|refresh_token|access_token|private_key|password|token|secret|api_?key)"\s*:\s*"[^"]',
    re.IGNORECASE,
)


def is_secret(name: str, value: str) -> bool:
    """Say whether a variable holds a secret, by the words of its name, or by what is unmistakable in its value.

    The place of a file is none, nor is a yes or no, nor a number where the name is not that of a password.

    Examples
    --------
    >>> [is_secret(*one) for one in (("HF_TOKEN", "hf_x"), ("PGPASSWORD", "x"), ("AWS_SECRET_ACCESS_KEY", "x"))]
    [True, True, True]
    >>> [is_secret(*one) for one in (("TOKENIZERS_PARALLELISM", "false"), ("MAX_TOKENS", "4096"), ("PATH", "/bin"))]
    [False, False, False]
    >>> [is_secret(*one) for one in (("SSHPASS", "1234"), ("FIRST_PASS", "1234"), ("JOIN_KEY", "station_id"))]
    [True, False, False]
    """
    if name.startswith("BASH_FUNC_"):
        return False
    if _VALUE.search(value):
        return True
    if name.startswith(_OF_MPI):
        return False
    words = _words(name)
    kinds = {_kind(before, word, is_last=word is words[-1]) for before, word in pairwise(["", *words])} - {""}
    return bool(kinds) and not _is_harmless(words, value, is_password="password" in kinds)


def secrets_of(variables: Mapping[str, str]) -> list[str]:
    """Name those that hold secrets."""
    return sorted(name for name, value in variables.items() if is_secret(name, value))


def asked(names: Iterable[str], who: str = "a stage") -> dict[str, str]:
    """Give the variables of this process that a job asks for by name, since secrets do not go on by themselves.

    `who` asks for them, in words.
    Raises `InputError`: one is not set here, and the job would begin without it.
    """
    wanted = {name: os.environ.get(name) for name in names}
    if absent := [name for name, value in wanted.items() if value is None]:
        raise InputError(
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not set here, and {who} asks for it",
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


def _words(name: str) -> list[str]:
    apart = _IN_ONE.sub(lambda found: f"_{found[0]}", name.upper())
    return [word for word in re.split(r"[^A-Z]+", apart) if word]


def _kind(before: str, word: str, *, is_last: bool) -> str:
    """Say what a word of a name, behind another, makes of it: that of a "password", of a "token", or nothing."""
    if before in _NOT_BEHIND.get(word, ()):
        return ""
    if word in _PASSWORD:
        return "password"
    if word in _TOKEN or (word in _KEY and before):
        return "token"
    return _ONLY_LAST.get(word, "") if is_last else ""


def _is_harmless(words: list[str], value: str, *, is_password: bool) -> bool:
    last = words[-1]
    if _YES_OR_NO.fullmatch(value) or last in _ABOUT or (value in ("0", "1") and not _SWITCH.isdisjoint(words)):
        return True
    if not is_password and (_SMALL.fullmatch(value) or _MARK.fullmatch(value)):
        return True
    if not is_password and "TOKENS" in words and _AMOUNT.fullmatch(value):
        return True
    if last == "PAT" and any(character in value for character in "*?[%{"):
        return True
    if last in _ONLY_LAST and _METHOD.fullmatch(value):
        return True
    return _is_place(last, value)


def _is_place(last: str, value: str) -> bool:
    if last in _FILE and re.search(r"/|\.\w{1,8}$", value):
        return True
    if last in _ADDRESS and value.startswith(("http://", "https://")):
        return True
    return value.startswith(("/", "~", "./", "file:")) and (last in _PLACE or _is_there(value))


def _is_there(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False

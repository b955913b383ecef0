"""The one rule for which variables of a user's shell hold secrets, and which may be stored.

Secrets are passed on only to stages that ask for them by name. Nobody can list all variables that hold secrets. So a
variable is written to the disk, for later processes, only with evidence that it is harmless: its name is on a list, or
its value is an ordinary setting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from asa.core.evidence import (
    gives_away,
    is_drawn_whole,
    is_ordinary,
    is_program_or_file,
    is_short_code,
    looks_drawn,
    open_words,
)
from asa.core.patterns import pattern
from asa.errors import InputError

KEEPS = "ASA_KEEP"
"""Variable with further names and patterns to keep, separated by commas, as in ``DATA,MYAPP_*``; no secrets."""

_LIST = (
    # who and where the user is
    "HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMP|TEMP|SCRATCH|WORK|PROJECT|PROJECTS|STORE|CLUSTER",
    "XDG_[A-Z_]+|DBUS_SESSION_BUS_ADDRESS|SSH_AUTH_SOCK|KRB5CCNAME|(HTTPS?|FTP|NO|ALL)_PROXY",
    # where programs, libraries and data are
    r"\w*PATH|\w+_(DIRS?|HOME|ROOT|PREFIX|BASE|BIN|LIBS?|INC|INCLUDE|LIBRARY|CACHE|FOLDER|VERSION)|\w*DIR",
    "LD_[A-Z_]+|CC|CXX|FC|F77|F90|MPI(CC|CXX|FC)|[A-Z]*FLAGS|LIBS|CLASSPATH|[A-Z]*LM_LICENSE_FILE",
    r"(PYTHON|PERL|JULIA_|JAVA_|R_|MATLAB|CONDA_|MAMBA_|_CE_|VIRTUAL_|PYENV_|SPACK_|EB|NIX_|GUIX_)\w*",
    r"(MODULE|LMOD_|__LMOD_|__MODULES_|_ModuleTable)\w*|LOADEDMODULES|_LMFILES_\w*|BASH_FUNC_\w+(%%|\(\))|(BASH_)?ENV",
    r"(APPTAINER|SINGULARITY)_\w+",
    # parallel execution
    r"(OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|NUMBA|NUMEXPR|TBB|OMPI|PRTE|PMIX|I_MPI|MPICH|MV2|MVAPICH|UCX|FI|PSM2?)_\w+",
    r"(NCCL|RCCL|HCOLL|CUDA|NVIDIA|NV|ROCM?|ROCR|HIP|HSA|GPU|ONEAPI|SYCL|ZE|OCL|CRAY|CRAYPE|PE|ATP)_\w+|CRAY\w*",
    # programs of many groups: how they read and write, and where they are installed
    r"(GFORTRAN|FORT?|WM|FOAM|GMX|G4|FSL|HDF5|NETCDF|PROJ|GDAL|CPL|ESMF|CDO|NCO|TF|XLA|JAX|TORCH|PYTORCH|PETSC|ROMIO|MALLOC)_\w+",
    r"F_UFMTENDIAN|_JAVA_OPTIONS|SSL_CERT_\w+",
    # batch systems and asa
    r"(SLURM|SBATCH|SQUEUE|SACCT|SINFO|SCANCEL|ASA|DASK|NUMEXPR|MPL)_\w+|MPLBACKEND|SOURCE_DATE_EPOCH",
)
_KEPT = pattern("|".join(_LIST), re.IGNORECASE)
_OF_THIS_SHELL = pattern(
    r"_|SHLVL|PWD|OLDPWD|SLURM_(JOB|STEP|TASK|NODE|CPUS|MEM|PROC|LOCAL|GTIDS)\w*"
    r"|TERM\w*|COLUMNS|LINES|PS[0-4]|PROMPT\w*|HIST\w+|LS_COLORS|LESS\w*|MAIL|SSH_(CLIENT|CONNECTION|TTY)|DISPLAY|XAUTHORITY"
    r"|WINDOWID|COLORTERM|EDITOR|VISUAL|PAGER|HOSTNAME|HOSTTYPE|OSTYPE|MACHTYPE|which_declare|TMUX\w*|STY|VTE_\w+|GPG_TTY"
)
"""Variables that mean nothing, or something else, outside of this login session."""

# words inside a name without separators, as in SSHPASS or SECRETKEY, are split off first
_IN_ONE = pattern(
    r"(?<=[A-Z])(PASSWORDS?|PASSWORT|KENNWORT|PASSWD|PSWD|PASSPHRASE|PASSCODE|PASS|PWD|SECRETS?|TOKENS?|CREDENTIALS?|JWT|AUTH)(?![A-Z])"
    r"|(?<=[A-Z]{2})PW(?![A-Z])"
    r"|(?<=API|SSH|APP)KEYS?(?![A-Z])|(?<=PASS|AUTH|USER|ROOT)KEYS?(?![A-Z])|(?<=CRYPT)KEYS?(?![A-Z])"
    r"|(?<=SECRET|MASTER|ACCESS|SHARED|DEPLOY)KEYS?(?![A-Z])|(?<=PRIVATE|ACCOUNT|SIGNING|SERVICE|RYPTION)KEYS?(?![A-Z])"
)


def _among(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_SETTINGS = _among(
    "ACCELERATOR ACCOUNT ADDR ADDRESS ALGORITHM ARCH ARCHITECTURE ATOL AXIS BACKEND BATCH BUILD CALENDAR CASE "
    "CASENAME CHUNK CHUNKS CLUSTER COMPILER COMPONENT CONF CONFIG CONFIGURATION COUNT CUTOFF DATABASE DATASET DATE "
    "DAY DAYS DB DEBUG DECOMP DEVICE DEVICES DOMAIN DRIVER DTYPE EMAIL ENCODING ENDIAN ENDPOINT ENSEMBLE EPOCHS EXE "
    "EXECUTABLE EXP EXPERIMENT EXPID EXPNAME EXT FACTOR FC FILE FILES FILTER FMT FORCING FORMAT FREQ FREQUENCY GRID "
    "GROUP HOST HOSTNAME HOSTS HOUR HOURS INDEX INPUT INTERVAL ITER ITERATIONS JOBNAME LANG LEVEL LEVELS LIMIT LIST "
    "LOG LOGGING LOGLEVEL MACHINE MASK MEM MEMBER MEMBERS MEMORY MESH METHOD MIN MINUTES MODE MODEL MODULE MODULES "
    "MONTH NAME NAMES NETWORK NODES NOISE NPROC NPROCS NTASKS NUM OUTPUT PARTITION PATTERN PERIOD PHYSICS PLATFORM "
    "PLATFORMS PLUGIN PLUGINS POLICY PORT PRECISION PREFIX PRESET PROCS PROFILE PROGRAM PROJECT PROTOCOL PROVIDER QOS "
    "QUEUE RANGE RANKS RATE REALIZATION REGION REGIONS RELEASE RES RESOLUTION RTOL RUN RUNNAME SCALE SCENARIO "
    "SCHEDULER SCHEME SEED SERVER SET SEVERITY SIZE SOLVER SOURCE SPACING SPECIES STACKSIZE STAGE START STATION "
    "STEP STEPS STRATEGY STREAM SUFFIX SUITE SYSTEM TABLE TAG TARGET TASK TASKS TEMPERATURE TEMPLATE THREADS TIME "
    "TIMEOUT TIMESTEP TITLE TOLERANCE TOOLCHAIN TYPE UNIT UNITS URI URL VAR VARIABLE VARIABLES VARS VERBOSE "
    "VERBOSITY VERSION WORKERS YEAR YEARS ZONE"
)
"""As the last word of a name: the value is a setting."""
_GIVES_ORDERS = _among("ARGS ARGUMENTS CMD COMMAND FLAGS OPTIONS OPTS PARAMS PARAMETERS")
_PASSWORD = _among(
    "PASSWORD PASSWORDS PASSWD PSWD PASSPHRASE PASSCODE PASSWORT KENNWORT PASSKEY CONTRASENA SENHA MDP SECRET SECRETS "
    "CREDENTIAL CREDENTIALS CRED CREDS COOKIE COOKIES JWT OTP TOTP PSK BEARER"
)
_SECRET_OF_A_KIND = {
    "pin": pattern(r"[0-9]{4,12}"),  # digits, not the threads that a process is pinned to
    "login": pattern(r"[^\s:/]{1,64}:(?![0-9]{1,5}$)[^\s:/]{1,256}"),  # a name and a password, not a host and a port
}
_OF_MORE_MEANINGS = {"PASS": "pass", "PW": "plane waves", "PWD": "folder", "PIN": "pin", "LOGIN": "login"}
_TOKEN, _KEY = _among("TOKEN TOKENS PAT"), _among("KEY KEYS")
_OF_KEYS = _among(
    "ACCESS ACCOUNT AES APP AUTH AWS AZURE BACKUP CERT CLIENT CONSUMER CRYPTO DECRYPTION DEPLOY ENCRYPTION FERNET "
    "GPG HMAC IDENTITY KAGGLE LOGIN MASTER PASS PGP PRIV PRIVATE RECOVERY ROOT RSA S SECRET SECURITY SERVER SERVICE "
    "SESSION SHARED SIGN SIGNATURE SIGNING SSH SSL ST STORAGE SUBSCRIPTION TLS TOKEN USER VAULT WEBHOOK WIFI"
)
"""Before KEY: the key protects something, whatever its value looks like."""
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
"""By word: the words after which it has another meaning."""
_NOT_BEHIND |= {f"{word}S": _NOT_BEHIND[word] for word in ("TOKEN", "KEY")}
_ABOUT = _among(
    "TYPE NAME LENGTH LEN SIZE BITS COUNT NUMBER LIMIT BUDGET RATE INDEX COLUMN FIELD PREFIX SUFFIX FORMAT VERSION "
    "HEADER VAR ALGORITHM METHOD MODE POLICY PROVIDER BACKEND HELPER MANAGER ISSUER AUDIENCE SCOPE DOMAIN SERVER "
    "PORT EXPIRY TTL TIMEOUT LIFETIME ROUNDS PROMPT COMMAND CMD REQUIRE REQUIRED ENABLED DISABLED THROUGH FILTER "
    "EXE EXECUTABLE"
)
"""As the last word of a name: the value only describes a secret."""
_PLACE = _among("FILE PATH DIR FOLDER HOME SOCK SOCKET URL URI CONFIG")
_FILE, _ADDRESS = _among("FILE PATH DIR FOLDER"), _among("URL URI ENDPOINT")
_OF_MPI = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_", "HYDRA_", "I_MPI_")
"""Prefixes of MPI's settings, such as how its processes authenticate each other."""
_OF_MODULES = ("_ModuleTable", "__LMOD", "LMOD_", "__MODULES")
_SWITCH = _among("USE ASK NO ALLOW REQUIRE NEED WITH HAS IS ENABLE DISABLE SKIP PROMPT SAVE")
_YES_OR_NO = pattern(r"|true|false|yes|no|on|off|none", re.IGNORECASE)
_SMALL = pattern(r"[-+]?[0-9.]{1,7}")
_AMOUNT = pattern(r"[-+]?[0-9][0-9._, ]*(e[-+]?[0-9]+)?[kmgbt]?", re.IGNORECASE)
_MARK = pattern(r"<[^<>]{1,30}>|\[[^][]{1,30}\]")
_METHOD = pattern(
    r"munge|kerberos|krb5|gssapi|gsi|ssh|ssl|tls|x509|basic|digest|ntlm|negotiate|bearer|oauth2?|oidc|saml|jwt|iam|ldap|pam|sasl"
    r"|plain|md5|scram|token|password|publickey|key|anonymous|external|auto|native|slurm|google|github|gitlab",
    re.IGNORECASE,
)
_OF_SERVICES = (
    r"gh[oprsu]_[a-z0-9]{16}|github_pat_\w{16}|gl(pat|dt|ft|rt|cbt|ptt|soat|imt|ffct|agent)-[\w-]{16}|(nvapi|xai|tskey|lin_api)-[\w-]{16}"
    r"|(hf|npm|gsk|r8|pnu|ntn|rdme|rubygems|shippo_(live|test)|shp(at|ca|pa|ss))_[a-z0-9]{16}|(glc|glsa)_[a-z0-9+/]{16}|(dckr_pat|pscale_\w{2,5}|do[opr]_v1)_[\w.=-]{16}"
    r"|(sk|rk)_(live|test|prod)_[a-z0-9]{8}|(sk|whsec)_[a-z0-9+/]{24}|sntry[su]_[\w+/=-]{16}|xox[abeoprs][.-][\w.-]{10}|xapp-[\w-]{12}|dapi[0-9a-f]{32}|dt0[a-z][0-9]{2}\.[a-z0-9]{24}\.|pat[a-z0-9]{14}\.[0-9a-f]{60}|secret_[a-z0-9]{40}"
    r"|sk-((proj|ant|or|svcacct|admin)-[\w-]{16}|[a-z0-9]{20})|pypi-AgE[\w-]{16}|(hv[sbr]|ya29|SG|dp\.(pt|st|ct|sa))\.[\w.=-]{16}"
    r"|(?-i:(AKIA|ASIA|ABIA|ACCA|LTAI)[0-9A-Za-z]{16}|AIza[\w-]{35}|AGE-SECRET-KEY-\w|AKCp[\w]{60}|ABSK[\w+/]{60}|EZ[AT]K[a-z0-9]{50}"
    r"|EAA[A-Z][A-Za-z0-9]{80}|FLWSECK|PMAK-[a-f0-9]{20}|p8e-[a-z0-9]{30}|v1\.0-[a-f0-9]{24}-|[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk|API-[A-Z0-9]{26}|sha256~[\w-]{40}|fm[12][ar]?_[\w+/]{40}|fo1_[\w-]{40}|T3BlbkFJ)"
    r"|[0-9]{8,10}:[\w-]{35}(?![\w-])|[\w~.]{3}[0-9]Q~[\w~.-]{31}|[a-z0-9]{14}\.atlasv1\.[\w=-]{40}|[0-9]{17}-[0-9a-f]{32}(?![0-9a-f])"
)
_VALUE = pattern(
    r"\b[a-z][a-z0-9+.-]{1,15}://[^/\s:@]*:[^/\s@]+@"  # a password in an address
    r"|://[0-9a-f]{32}@|[?&](sig|signature|X-Amz-Signature|token|access_token|api_?key|key|password)=[^&\s]"
    r"|://hooks\.slack\.com/(services|workflows|triggers)/\w|webhook\.office\.com/webhookb2/\w|://discord(app)?\.com/api/webhooks/\w"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|^eyJ[\w-]+\.eyJ[\w-]+\."  # a JWT
    rf"|(?<![\w/.-])({_OF_SERVICES})|://({_OF_SERVICES})"
    r"|(^|[;\s])(AccountKey|SharedAccess(Key|Signature)|password|passwd)\s*=\s*[^;\s]"  # connection strings
    r"|;\s*pwd\s*=\s*[^;\s]"
    r"|\bauthorization\s*[:=]\s*\S|\bBearer\s+[\w.~+/=-]{8,}|\bapi-key\s*[:=]\s*\S|\blogin\s+\S+\s+password\s+\S"
    r"|--(password|passwd|passphrase|api-?key|client-secret|(access|auth)-token)[= ]\s*[^-\s]"
    r'|"auths?"\s*:'  # credentials of container registries
    r'|"(client_secret|refresh_token|access_token|private_key|password|token|secret|api_?key)"\s*:\s*"[^"]',
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)  # each job inherits the same variables
def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by the words in its name or the form of its value.

    The path of a file is no secret, nor is yes or no. A number is a secret only if the name means a password.

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
    if is_drawn_whole(value) and not name.startswith(_OF_MODULES):
        return True
    words = _words(name)
    kinds = {_kind(before, word, is_last=word is words[-1]) for before, word in pairwise(["", *words])} - {""}
    return bool(kinds) and not all(_is_harmless(kind, words, value) for kind in kinds)


def secrets_of(variables: Mapping[str, str]) -> list[str]:
    """Return the names of variables that hold secrets."""
    return sorted(name for name, value in variables.items() if is_secret(name, value))


def asked(names: Iterable[str], who: str = "a stage") -> dict[str, str]:
    """Return the variables of this process that a job asks for by name; no other secrets are passed on.

    `who`: who asks for them, in words.
    Raises `InputError`: one is not set here, so the job would lack it.
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
    """Return the variables that may be stored for later processes.

    Examples
    --------
    >>> kept({"PATH": "/usr/bin", "SLURM_JWT": "ey.ey.x", "MY_THING": "1", "OTHER": "hunter2", "ASA_KEEP": "MY_*"})
    {'PATH': '/usr/bin', 'MY_THING': '1', 'ASA_KEEP': 'MY_*'}
    """
    added = [name.strip() for name in variables.get(KEEPS, "").split(",")]
    known = open_words(variables.values())
    return {
        name: value
        for name, value in variables.items()
        if not (_OF_THIS_SHELL.fullmatch(name) or is_secret(name, value))
        and (
            _KEPT.fullmatch(name)
            or any(fnmatchcase(name, pattern) for pattern in added)
            or _is_setting(name, value, known)
        )
    }


def _is_setting(name: str, value: str, known: set[str]) -> bool:
    """Whether a value is an ordinary setting, or looks harmless in a variable that is named like a setting."""
    if is_ordinary(value, known):
        return True
    words = _words(name)
    if not words or looks_drawn(value):
        return False
    if words[-1] in _GIVES_ORDERS:
        return not gives_away(value)
    return words[-1] in _OF_SETTINGS or not _SWITCH.isdisjoint(words[:1])


def left_out(variables: Mapping[str, str]) -> list[str]:
    """Name the variables that `kept` drops although they may be wanted: no secrets, nothing about the terminal."""
    others = {name: value for name, value in variables.items() if not is_secret(name, value)}
    return sorted(name for name in others.keys() - kept(others).keys() if not _OF_THIS_SHELL.fullmatch(name))


def _words(name: str) -> list[str]:
    apart = _IN_ONE.sub(lambda letters: f"_{letters[0]}", name.upper())
    return [word for word in re.split(r"[^A-Z]+", apart) if word]


def _kind(before: str, word: str, *, is_last: bool) -> str:
    """Return what a word of a name, after another word, suggests: a "password", a "token" and the like, or nothing."""
    if before in _NOT_BEHIND.get(word, ()):
        return ""
    if word in _PASSWORD:
        return "password"
    if word in _TOKEN:
        return "token"
    if word in _KEY and before:
        return "token" if before in _OF_KEYS or before.endswith(("API", "CRYPT", "RYPTION")) else "key"
    if is_last or word in {"PASS", "PWD"}:
        return _ONLY_LAST.get(word) or _OF_MORE_MEANINGS.get(word, "")
    return "plane waves" if word == "PW" else ""


def _is_harmless(kind: str, words: list[str], value: str) -> bool:
    if _YES_OR_NO.fullmatch(value) or words[-1] in _ABOUT or (value in ("0", "1") and not _SWITCH.isdisjoint(words)):
        return True
    if (form := _SECRET_OF_A_KIND.get(kind)) is not None:
        return form.fullmatch(value) is None
    if kind == "password":
        return _is_place(words[-1], value, is_sure=True)
    if kind in {"token", "key"}:
        return _is_no_token(words, value) or (kind == "key" and (is_short_code(value) or is_ordinary(value)))
    return _means_another_thing(kind, words, value)


def _is_no_token(words: list[str], value: str) -> bool:
    if _SMALL.fullmatch(value) or _MARK.fullmatch(value) or ("TOKENS" in words and _AMOUNT.fullmatch(value)):
        return True
    if words[-1] == "PAT" and any(character in value for character in "*?[%{"):
        return True
    if words[-1] in _ONLY_LAST and _METHOD.fullmatch(value):
        return True
    return _is_place(words[-1], value) or ("/" in value and is_program_or_file(value))


def _means_another_thing(kind: str, words: list[str], value: str) -> bool:
    """Whether a value in a name with PASS, PW or PWD is a pass over data, plane waves or a folder, not a password."""
    if any(map(str.isalpha, value)) and is_ordinary(value):
        return True
    if kind == "plane waves" and (is_program_or_file(value) or (words[-1] != "PW" and _SMALL.fullmatch(value))):
        return True
    if kind == "pass" and words[-1] in _GIVES_ORDERS and words[0] == "PASS":
        return not (gives_away(value) or looks_drawn(value))
    if kind == "folder" and value.startswith(("./", "../")):
        return True
    top = "/".join(value.split("/")[:2])
    if kind == "folder" and len(top) > 1 and value.startswith("/") and _is_there(top):
        return True
    return _is_place(words[-1], value, is_sure=True)


def _is_place(last: str, value: str, *, is_sure: bool = False) -> bool:
    """Whether a value is a path or an address; `is_sure`: reject values that could be a password with a slash."""
    if last in _FILE and re.search(_SURELY_A_PATH if is_sure else r"/|\.\w{1,8}$", value):
        return True
    if last in _ADDRESS and value.startswith(("http://", "https://")):
        return True
    return value.startswith(("/", "~", "./", "file:")) and (last in _PLACE or _is_there(value))


_SURELY_A_PATH = r"^(~?/|\.\.?/)|\.[A-Za-z]\w{0,7}$|^[A-Za-z_-]{1,64}(/[A-Za-z_-]{1,64})+/?$"


def _is_there(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False

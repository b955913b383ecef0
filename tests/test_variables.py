"""The variables of a shell that are stored: listed ones, ordinary settings, the user's additions; no secrets."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.variables import kept, left_out

NEEDED = (
    "PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "MANPATH", "MODULEPATH", "LOADEDMODULES", "_LMFILES_",
    "__LMOD_REF_COUNT_PATH", "_ModuleTable001_", "BASH_FUNC_module%%", "BASH_FUNC_ml%%", "EBROOTGCC", "CONDA_PREFIX",
    "VIRTUAL_ENV", "PYTHONPATH", "R_LIBS_USER", "OMP_NUM_THREADS", "I_MPI_FABRICS", "OMPI_MCA_btl", "UCX_TLS",
    "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "SLURM_CONF", "SBATCH_ACCOUNT", "ASA_RUNS", "SCRATCH", "TMPDIR",
    "DATA_DIR", "PROJECT", "GROMACS_HOME", "APPTAINER_BIND", "KRB5CCNAME", "SSH_AUTH_SOCK", "INTEL_LICENSE_FILE_PATH",
    "MLM_LICENSE_FILE", "https_proxy", "CFLAGS", "CC", "XDG_RUNTIME_DIR", "MPLBACKEND", "LMOD_DIR", "FI_PROVIDER",
)  # fmt: skip
SECRET = (
    "SLURM_JWT", "ASA_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "HF_TOKEN", "PGPASSWORD",
    "MYSQL_PWD", "OPENAI_API_KEY", "WANDB_API_KEY", "AZURE_CLIENT_SECRET", "APPTAINER_DOCKER_PASSWORD", "CONDA_TOKEN",
    "SSH_PRIVATE_KEY", "SLURM_DB_PASS", "ASA_API_KEY", "RESTIC_PASSWORD", "GPG_PASSPHRASE", "XDG_SESSION_COOKIE",
    "SPACK_CREDENTIALS_DIR", "MODULE_SECRET_PATH",
)  # fmt: skip
OPAQUE = "xK3vQ9rT2mW8"
UNLISTED = ("MINE", "VAULT_ADDR", "OUR_ENTRY", "AWS_PROFILE", "KUBECONFIG", "NETRC", "APPTAINERENV_LOGIN")


def test_what_programs_need_is_kept():
    assert kept(dict.fromkeys(NEEDED, "1")).keys() == set(NEEDED)


def test_no_secret_is_kept_whatever_list_its_name_is_on():
    assert kept(dict.fromkeys(SECRET, "hush")) == {}
    assert left_out(dict.fromkeys(SECRET, "hush")) == []
    assert kept({"HTTPS_PROXY": "http://me:hush@proxy:3128", "HTTP_PROXY": "http://proxy:3128"}) == {
        "HTTP_PROXY": "http://proxy:3128"
    }


@given(st.text(st.characters(codec="utf-8", exclude_characters="=\0"), min_size=1))
def test_a_name_that_nobody_listed_is_not_kept_with_a_value_that_says_nothing(name):
    name = f"Q{name}Q"
    assert name not in kept({name: OPAQUE})
    assert left_out({name: OPAQUE}) == [name]


ORDINARY = {
    "CPL_ZIP_ENCODING": "UTF-8", "ESMFMKFILE": "/etc/passwd", "XML_CATALOG_FILES": "file:///etc/passwd file:///usr",
    "F_UFMTENDIAN": "big;little:10-20", "GFORTRAN_CONVERT_UNIT": "big_endian", "MKLROOT": "/usr", "STACKSIZE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2", "HF_HUB_OFFLINE": "1", "PARA_ARCH": "SMP", "GMX_MAXBACKUP": "-1", "ANY": "400m",
    "CDO_TIMESTAT_DATE": "last", "NXF_OPTS": "-Xms1g -Xmx4g", "ASE_VASP_COMMAND": "srun vasp_std", "NOTHING": "",
    "INTEL_LICENSE_FILE": "28518@lic1", "LICENCES": "1055@lic1", "BEGAN": "2024-01-31", "RATES": "0.1,0.25,1e-3",
    "ARCHIVE": "/tmp/not-yet/there", "PETSC_OPTIONS": "-log_view -ksp_type gmres", "CDSAPI_URL": "https://a.eu/api",
    "ACCOUNT": "p42", "WM_COMPILER": "Gcc", "USE_NCCL": "NCCL", "SHARES": "/usr/share:/usr/lib", "BOX": "64x64x32",
    "OUR_CUBLAS": ":4096:8", "RELEASED": "v1.2.3-rc1", "SEASON": "2023_05",
}  # fmt: skip
DOUBTFUL = {
    "MINE": "hunter2", "OTHER": "Winter2024!", "NUMBER": "12345678", "CODE": "1234-5678-9012", "PHRASE": "swordfish",
    "RELEASE": "9f86d081884c7d659a2feaa0c55ad015", "OUR_OPTS": "-u me:word", "OUR_ARGS": "-p word",
    "AT": "me@x",
    "OUR_COMMAND": "mysql -pword", "PLACE": "/tmp/bPx2fiC5Yq8Z", "SECRETS": "1", "NOWHERE": "/not-there/at/all",
    "OUR_NAME": "xK3vQ9rT2mW8", "BRANCH": "a\x1b[1m", "LONG": "1 " * 40_000,
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), ORDINARY.items())
def test_an_ordinary_setting_is_kept_whatever_its_name(name, value):
    assert kept({name: value}) == {name: value}


@pytest.mark.parametrize(("name", "value"), DOUBTFUL.items())
def test_what_may_be_a_secret_is_not_kept(name, value):
    """A word, a long number, what looks drawn, options that give a user or a password."""
    assert kept({name: value}) == {}


def test_what_is_drawn_is_not_kept():
    """Of letters, digits or both, in a name that says nothing."""
    lot = random.Random(7)
    for kinds in (string.ascii_letters + string.digits, string.hexdigits, string.ascii_lowercase):
        for length in (10, 16, 32):
            drawn = ["".join(lot.choices(kinds, k=length)) for _ in range(100)]
            assert [value for value in drawn if kept({"MINE": value})] == []


def test_a_word_of_a_path_that_is_there_is_no_secret(tmp_path):
    (tmp_path / "OpenFOAM-v2306").mkdir()
    shell = {"OUR_FOAM": "OpenFOAM", "OUR_PLACE": f"{tmp_path}/OpenFOAM-v2306"}
    assert kept(shell) == shell
    assert kept({"OUR_FOAM": "OpenFOAM"}) == {}


def test_what_is_left_out_is_named_but_not_what_a_terminal_has():
    terminal = ("PWD", "TERM", "LS_COLORS", "SSH_CLIENT", "PS1", "SLURM_JOB_ID", "HISTSIZE", "DISPLAY", "_")
    assert left_out(dict.fromkeys((*NEEDED, *UNLISTED, *terminal), OPAQUE)) == sorted(UNLISTED)
    assert kept(dict.fromkeys(terminal, "1")) == {}


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("MINE", {"MINE"}),
        ("MINE, OUR_*", {"MINE", "OUR_ENTRY", "OUR_DIR"}),
        ("*", {"MINE", "OUR_ENTRY", "OUR_DIR"}),
        ("OUR_TOKEN", {"OUR_DIR"}),
        ("OUR_*", {"OUR_ENTRY", "OUR_DIR"}),
        ("", {"OUR_DIR"}),
    ],
)
def test_a_user_adds_to_the_list(asked, names):
    """By pattern; never a secret."""
    shell = dict.fromkeys(("MINE", "OUR_ENTRY", "OUR_DIR", "OUR_TOKEN"), "hush-hush1")
    assert kept(shell | {"ASA_KEEP": asked}).keys() - {"ASA_KEEP"} == names | {"OUR_DIR"}

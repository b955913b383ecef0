"""Which variables of a shell are written down: those on a list, and those that their user adds; no secrets."""

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
def test_a_name_that_nobody_listed_is_not_kept(name):
    name = f"Q{name}Q"
    assert name not in kept({name: "x"})
    assert left_out({name: "1"}) == [name]


def test_what_is_left_out_is_named_but_not_what_a_terminal_has():
    terminal = ("PWD", "TERM", "LS_COLORS", "SSH_CLIENT", "PS1", "SLURM_JOB_ID", "HISTSIZE", "DISPLAY", "_")
    assert left_out(dict.fromkeys((*NEEDED, *UNLISTED, *terminal), "1")) == sorted(UNLISTED)
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
    shell = dict.fromkeys(("MINE", "OUR_ENTRY", "OUR_DIR", "OUR_TOKEN"), "hush")
    assert kept(shell | {"ASA_KEEP": asked}).keys() - {"ASA_KEEP"} == names | {"OUR_DIR"}

"""Secrets of a user's shell go on to no job whose stage has not asked for them; all else does."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from asa.backends.dmr.manager import LocalManager
from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.defaults import JobDefaults
from forked import asa
from local_queue import Queue
from slurm_fake_link import FakeLink, VirtualClock

from asa.backend import Capabilities, JobSpec
from asa.cli.detaching import chosen_way
from asa.core.variables import asked, is_secret, secrets_of
from asa.errors import InputError
from asa.keepers import Way, job
from asa.runner import RunPlan
from asa.sites import open_facility
from asa.workflow import Stage

SITE = Capabilities("x", 28, 28, age_accrues=False)
SECRETS = {
    "HF_TOKEN": "abc", "GITHUB_TOKEN": "abc", "WANDB_API_KEY": "abc", "KAGGLE_KEY": "abc", "AWS_ACCESS_KEY_ID": "abc",
    "AWS_SECRET_ACCESS_KEY": "/abc/def", "AWS_SESSION_TOKEN": "abc", "PGPASSWORD": "abc", "MYSQL_PWD": "abc",
    "RCLONE_CONFIG_PASS": "abc", "GPG_PASSPHRASE": "abc", "GITLAB_PAT": "abc", "AZURE_CLIENT_SECRET": "abc",
    "NPM_AUTH": "abc", "SLURM_JWT": "abc", "APPTAINERENV_HF_TOKEN": "abc", "my_secret": "abc",
    "DB_PASSWORD": "12345678",
    "DATABASE_URL": "postgres://me:word@host/db", "https_proxy": "http://me:word@proxy:3128",
    "DOCKER_AUTH_CONFIG": '{"auths": {"ghcr.io": {"auth": "bWU6d29yZA=="}}}', "NOTES": f"ghp_{'0a' * 18}",
    "DEPLOY": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
}  # fmt: skip
OTHERS = {
    "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/opt/lib", "MODULEPATH": "/opt/modules", "LOADEDMODULES": "gcc/12:mpi",
    "_LMFILES_": "/opt/gcc", "_ModuleTable001_": "X01vZHVsZVRhYmxl", "__LMOD_REF_COUNT_PATH": "/bin:1",
    "LMOD_CMD": "/l",
    "BASH_FUNC_module%%": "() { token=1; }", "CONDA_PREFIX": "/opt/conda", "CONDA_DEFAULT_ENV": "astro",
    "CONDA_PROMPT_MODIFIER": "(astro) ", "I_MPI_ROOT": "/opt/impi", "OMP_NUM_THREADS": "4", "MY_DATA": "/data",
    "TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "4096", "LM_LICENSE_FILE": "27000@host",
    "MOSEK_LICENSE_KEY": "abc",
    "SSH_AUTH_SOCK": "/tmp/agent", "AWS_WEB_IDENTITY_TOKEN_FILE": "/run/aws/token", "KRB5CCNAME": "FILE:/tmp/krb5cc_1",
    "GOOGLE_APPLICATION_CREDENTIALS": "/etc/passwd", "http_proxy": "http://proxy:3128", "KEY": "abc", "KEYMAP": "de",
    "COMPASS": "north", "GIT_AUTHOR_NAME": "me", "SLURM_CONF": "/etc/slurm.conf", "PATTERN": "a*",
    "SSL_CERT_FILE": "/c",
}  # fmt: skip

# of tools that users of clusters have
SECRETS_BY_NAME = (
    "SSHPASS", "LDAP_BINDPW", "ROOTPW", "SECRETKEY", "MASTERKEY", "HTTP_AUTHORIZATION", "DB_PASS", "DBPWD",
    "dbPassword",
    "OS_PASSWORD", "OS_APPLICATION_CREDENTIAL_SECRET", "OS_TOKEN", "ST_KEY", "NGC_API_KEY", "NGC_CLI_API_KEY",
    "COMET_API_KEY", "NEPTUNE_API_TOKEN", "MLFLOW_TRACKING_PASSWORD", "CLEARML_API_SECRET_KEY", "CDSAPI_KEY",
    "ECMWF_API_KEY", "EARTHDATA_PASSWORD", "EARTHDATA_TOKEN", "MP_API_KEY", "PMG_MAPI_KEY", "GLOBUS_CLIENT_SECRET",
    "VAULT_TOKEN", "RESTIC_PASSWORD", "BORG_PASSPHRASE", "RSYNC_PASSWORD", "SINGULARITY_DOCKER_PASSWORD",
    "ZENODO_ACCESS_TOKEN", "DATAVERSE_API_TOKEN", "NCBI_API_KEY", "MINIO_ROOT_PASSWORD", "MINIO_SECRET_KEY",
    "GRB_WLSSECRET", "TWINE_PASSWORD", "UV_PUBLISH_TOKEN", "GITHUB_PAT", "ANACONDA_API_TOKEN", "TOWER_ACCESS_TOKEN",
    "SNAKEMAKE_STORAGE_S3_SECRET_KEY", "AIRFLOW__CORE__FERNET_KEY", "PREFECT_API_KEY", "REDISCLI_AUTH", "COMPOSER_AUTH",
    "RABBITMQ_ERLANG_COOKIE", "ANSIBLE_BECOME_PASS", "DUO_PASSCODE", "JUPYTERHUB_API_TOKEN", "_HOROVOD_SECRET_KEY",
    "RAY_REDIS_PASSWORD", "AZURE_STORAGE_KEY", "JUPYTER_TOKEN", "apiKey", "SSH_PRIVATEKEY", "VPN_PSK", "MY_CREDS",
)  # fmt: skip
SECRETS_BY_VALUE = {
    "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=YWJj==;",
    "EVENT_HUB": "Endpoint=sb://x/;SharedAccessKeyName=me;SharedAccessKey=YWJj=", "PG_DSN": "host=db password=abc",
    "ODBC": "Server=db;Uid=me;Pwd=abc", "HTTP_HEADER": "Authorization: Basic bWU6YQ==",
    "CURL_OPTIONS": "-H 'Bearer abcdefgh'",
    "OTEL_EXPORTER_OTLP_HEADERS": "api-key=abc", "BLOB": "https://me.blob.core.windows.net/a?sv=1&sig=abc",
    "SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/T0/B0/abc",
    "SENTRY_DSN": f"https://{'0a' * 16}@sentry.org/1",
    "DISCORD_WEBHOOK": "https://discord.com/api/webhooks/1/abc",
    "REPOSITORY": f"https://ghp_{'0a' * 18}@github.com/me/a",
    "MC_HOST_store": "https://me:abc@minio.org", "CELERY_BROKER_URL": "amqp://me:abc@host//",
    "REDIS_URL": "redis://:abc@host",
    "GOOGLE": '{"type": "authorized_user", "refresh_token": "abc"}', "NETRC": "machine a login me password abc",
    "SIGNER": "-----BEGIN PGP PRIVATE KEY BLOCK-----", "AGE_IDENTITY": "AGE-SECRET-KEY-1ABC",
    "MY_ID": f"AKIA{'0A' * 8}",
    "PAY": "sk_live_abcdefgh12345678", "RENT": "rk_live_4eC39HqLyjWDarjtT1", "BOT": f"123456789:AAHdq{'Tc9_-' * 6}",
    "ANY_THING": "wJ8lrXu9nFE4I/K7MD1NG/bPx2fiC5", "MINE": f"pul-{'0a' * 20}", "MY_PASSWORT": "wort",
    "CARD_PIN": "4711",
    "PASSWORD_FILE": "hunter/2", "LOGIN": "me:word", "REGION_KEY": "a1b2c3d4e5f6", "CURL_OPTS": "--password word",
    "LLM": f"sk-proj-{'a1' * 12}", "AN_ID_TOKEN_URL": "https://me:abc@host/token", "SOME_KEY_NAME": f"hf_{'aB' * 17}",
    "DB_PASSWORD": "1234567", "KEY_PIN_PASS": "0", "CLIENT_SECRET": "42", "ROOTPW": "1", "SECRET_KEY": "1234567",
}  # fmt: skip
SOUND_SECRET = {
    "TRAIN_TOKENS": "10000000000", "MAX_NEW_TOKENS": "512", "TOKENS_PER_STEP": "5e5", "TOTAL_TOKENS": "1.4T",
    "TOKENS": "10_000_000_000", "MAXTOKENS": "4096", "PAD_TOKEN": "pad", "EOS_TOKEN": "</s>", "NEW_TOKEN": "<image>",
    "PAD_TOKEN_ID": "128004", "SPECIAL_TOKENS": "a,b", "TOKEN_TYPE": "bpe", "TOKENIZER": "bpe",
    "MIN_TOKEN_COUNT": "many",
    "TOKEN_URL": "https://host/token", "FILE_PAT": "*.nc", "PAT": "run_[0-9].h5", "EXCLUDE_PAT": "old", "PATTERN": "a",
    "FIRST_PASS": "calibrate", "SECOND_PASS": "2", "LOW_PASS": "0.1", "HIGHPASS": "300Hz", "BANDPASS_FILTER": "butter",
    "N_PASS": "two", "COMPASS": "north", "BYPASS": "cache", "PASSES": "three", "PASSTHROUGH": "all", "MULTIPASS": "yes",
    "SSH_ASKPASS": "/not/here/ssh-askpass", "GIT_ASKPASS": "ask", "SSH_ASKPASS_REQUIRE": "force",
    "SSHPASS_PROMPT": "Code",
    "OLDPWD": "/not/here", "JOIN_KEY": "station_id", "INDEX_KEY": "time", "SORT_KEYS": "a,b", "DICT_KEYS": "a",
    "PRNG_KEY": "0",
    "HASH_KEY": "name", "COMET_EXPERIMENT_KEY": "abc", "SSH_AUTHORIZED_KEYS": "ssh-ed25519 AAAA",
    "SSH_KEY_TYPE": "ed25519",
    "RSA_KEY_SIZE": "large", "S3_KEY_PREFIX": "runs/a", "UCX_IB_PKEY": "0x8001", "NCCL_IB_PKEY": "0x7fff",
    "MONKEY": "abc",
    "PUBLICKEY": "abc", "PGPASSFILE": "/home/me/.pgpass", "ANSIBLE_VAULT_PASSWORD_FILE": "vault.txt",
    "VAULT_SECRET_PATH": "secret/data/a", "RESTIC_PASSWORD_COMMAND": "pass show a", "CREDENTIAL_HELPER": "store",
    "SECRET_NAME": "abc", "JWT_ALGORITHM": "RS256", "SLURM_AUTH": "munge", "HDFS_AUTH": "kerberos", "GIT_AUTHOR": "me",
    "XAUTHORITY": "/home/me/.Xauthority", "AUTHORIZATION_URL": "https://host/a", "USE_PASSWORD": "1", "QE_PW": "pw.x",
    "REGION_KEY": "EU", "CASE_KEY": "base", "RUN_KEY": "r1i1p1", "SITE_KEY": "DE-Tha", "MODEL_KEY": "ECHAM6",
    "JSON_KEY": "name", "QC_PASS": "PASS", "OPT_PASS": "O3", "PASS2_OPTS": "-slow 2", "PW_EXE": "pw.x",
    "PW_CUTOFF": "60", "PW_COMMAND": "srun pw.x", "ESPRESSO_PW": "/opt/qe/pw.x", "PWD0": "./data", "I_PIN": "cores",
    "TEXT_TOKENS": "data/tok.bin", "JOB_LOGIN": "node:22", "CUDA_VISIBLE_DEVICES":
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "CONDA_BUILD": "numpy-1.26.4-py311h64a7726_0", "RUN_ID": "0a" * 20,
    "ECUT_PW": "60", "NPW": "1200", "I_MPI_PIN_DOMAIN": "omp", "SALT": "NaCl", "LICENSE_KEY": "abc",
    "OMPI_MCA_oob_auth": "x", "HYDRA_AUTH": "own",
    "DSN": "postgres://db/a",
    "JOB": "sk-learn-benchmark-of-trees", "SUITE": "hf_transformers_and_their_caches", "TITLE": "Basic research",
    "QUERY": "https://host/a?page=2", "REPO": "ssh://git@github.com/a", "OPTIONS": "--keys=2 --tokens=3",
}  # fmt: skip


@pytest.mark.parametrize("name", SECRETS_BY_NAME)
@pytest.mark.parametrize("value", ["abc", "12345678"])
def test_what_holds_a_secret_by_its_name(name, value):
    assert is_secret(name, value)


@pytest.mark.parametrize("name", [name for name in SECRETS_BY_NAME if "PASS" in name.upper() or "SECRET" in name])
@pytest.mark.parametrize("value", ["0", "1234", "1234567"])
def test_a_password_of_digits_is_a_secret(name, value):
    assert is_secret(name, value)


@pytest.mark.parametrize(("name", "value"), SECRETS_BY_VALUE.items())
def test_what_holds_a_secret_by_its_value(name, value):
    assert is_secret(name, value)


@pytest.mark.parametrize(("name", "value"), SOUND_SECRET.items())
def test_what_sounds_like_a_secret_and_is_none(name, value):
    assert not is_secret(name, value)


@pytest.mark.parametrize(("name", "value"), SECRETS.items())
def test_what_holds_a_secret(name, value):
    assert is_secret(name, value)


@pytest.mark.parametrize(("name", "value"), OTHERS.items())
def test_what_goes_on_as_with_sbatch(name, value):
    assert not is_secret(name, value)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "a",
            "a:",
            "a://",
            "://a:",
            '"auth"',
            "-----BEGIN ",
            "eyJ",
            "A_",
            "sk-",
            " ",
            "PASS",
            "KEY",
            "A_KEY_",
            "PW",
            "?key",
            ";pwd ",
        ),
        *("password  ", "Bearer ", "login a ", "authorization ", "://0a", '"token" ', "hf_", "1,", "<", "SECRETKEY"),
    ],
)
def test_values_and_names_of_any_length_are_read_in_linear_time(piece):
    """Linux gives a variable 128 KiB."""
    took_s = []
    for count in (10_000, 100_000):
        text = piece * (count // len(piece))
        begin_s = time.process_time()
        is_secret("X", text)
        is_secret(text, "x")
        took_s.append(time.process_time() - begin_s)
    assert took_s[1] < 20 * took_s[0] + 0.1


def test_a_job_of_slurm_gets_the_secrets_that_it_asks_for_and_no_others(monkeypatch, tmp_path):
    """And all else, also where the client is in a job and where jobs inherit nothing."""
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in (SECRETS | OTHERS).items():
        monkeypatch.setenv(name, value)
    clock = VirtualClock()
    link = FakeLink(clock, tmp_path)
    backend = SlurmBackend(link, tmp_path, SITE, defaults=JobDefaults(), clock=clock, sleep=clock.sleep)
    backend.submit(JobSpec("a", 1, 60.0, command="true", token="a"))
    backend.submit(JobSpec("b", 1, 60.0, command="true", token="b", secrets=("HF_TOKEN", "https_proxy")))
    plain, asks = (job.environment for job in link.submitted)
    found = {name for name, value in SECRETS.items() if any(value in one for one in plain.values()) and value != "abc"}
    assert (SECRETS.keys() & plain.keys()) | found == set()
    assert {name for name in OTHERS if name.isupper()} <= plain.keys() | {"BASH_FUNC_module%%"}
    assert any("BASH_FUNC_module%%=" in value for value in plain.values())
    assert SECRETS.keys() & asks.keys() == {"HF_TOKEN"}
    assert any(value == f"https_proxy={SECRETS['https_proxy']}" for value in asks.values())
    assert JobDefaults(inherit=False).submission(["HF_TOKEN"])["HF_TOKEN"] == "abc"


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path, cores=2)
    yield queue
    queue.close()


FLOW = """
name = "flow"
[defaults]
cores = 1
walltime = "1min"
[[stage]]
name = "plain"
command = "env >plain.txt"
[[stage]]
name = "asks"
command = "env >asks.txt"
secrets = "HF_TOKEN"
after = ["plain"]
"""


def test_a_run_here_gives_a_secret_to_who_asks_and_says_which_stay(queue, tmp_path):
    """No file of the run holds it."""
    (tmp_path / "flow.toml").write_text(FLOW)
    environment = {**os.environ, "ASA_RUNS": "runs", "ASA_BANK": "bank", "ASA_SITES": "sites", "MY_DATA": "/data"}
    environment |= {"HF_TOKEN": "kept-to-itself", "WANDB_API_KEY": "abc"}
    how = ("--backend", "local", "--set", "cores=2", "--set", f"spool={queue.root / 'spool'}")
    done = asa("run", "flow.toml", *how, "--strategy", "per-stage", cwd=tmp_path, env=environment)
    assert "Not passed on to jobs, since they hold secrets: WANDB_API_KEY." in done.stderr
    assert 'secrets = ["WANDB_API_KEY"]' in done.stderr
    plain, asks = ((tmp_path / f"{name}.txt").read_text() for name in ("plain", "asks"))
    assert "MY_DATA=/data" in plain
    assert "HF_TOKEN" not in plain
    assert "HF_TOKEN=kept-to-itself" in asks
    assert "WANDB_API_KEY" not in plain + asks
    holds = [
        path for path in (tmp_path / "runs").rglob("*") if path.is_file() and b"kept-to-itself" in path.read_bytes()
    ]
    assert holds == []
    del environment["HF_TOKEN"]
    done = asa("run", "flow.toml", *how, cwd=tmp_path, env=environment, code=2)
    assert "HF_TOKEN is not set here" in done.stderr


def test_a_stage_of_a_pool_gets_what_it_asks_for(monkeypatch, tmp_path):
    """Over the pool's connections, which are encrypted."""
    stages = pytest.importorskip("asa.pool.stages")
    monkeypatch.setattr(stages, "_is_over", lambda: False)
    log = tmp_path / "log"
    order = stages._Order("env", str(tmp_path), "1", str(log), str(tmp_path), 60.0, {"HF_TOKEN": "abc"})
    assert stages.run_part(order, ()).code == 0
    assert "HF_TOKEN=abc" in Path(f"{log}.out").read_text()


def test_a_job_of_ones_own_manager_gets_no_secret(tmp_path):
    """Which was given the whole environment of who submits."""
    tmp_path.chmod(0o700)
    with LocalManager(1, folder=tmp_path) as manager:
        command = [sys.executable, "-m", "asa", "dmr", "submit", "--folder", tmp_path, "--", "env"]
        subprocess.run(command, env={**os.environ, "HF_TOKEN": "abc", "MY_DATA": "/data"}, check=True)
        ended = manager.wait(1, 30)
    assert "MY_DATA=/data" in ended.output.read_text()
    assert "HF_TOKEN" not in ended.output.read_text()


def test_who_looks_after_a_run_has_the_secrets_that_its_stages_ask_for(monkeypatch):
    """A job that drives it asks for them; cron and timers have none, and are not taken."""
    stages = (Stage("a", cores=1, command="true", secrets=("HF_TOKEN",)), Stage("b", cores=1, command="true"))
    plan = RunPlan("abcd1234", "x", "x", stages, "per-stage", "slurm-cli", SITE, created_s=1.7e9)
    monkeypatch.setattr("asa.keepers.possible", lambda facility: dict.fromkeys(Way, ""))
    assert chosen_way(None, plan, open_facility("local").facility) is Way.JOB
    with pytest.raises(InputError, match="secrets are not kept, and stage 'a' asks for HF_TOKEN") as caught:
        chosen_way(Way.CRON, plan, open_facility("local").facility)
    assert "what is no secret in its `environment`" in caught.value.hint

    class Queue:
        @staticmethod
        def find(_):
            return {}

        @staticmethod
        def submit(spec):
            return spec.secrets

    assert job.submit(Queue, "m", 1, "true", walltime_s=60.0, begin_s=None, names=["HF_TOKEN"]) == ("HF_TOKEN",)


def test_what_is_asked_for_and_not_set_is_said(monkeypatch):
    """All of it."""
    monkeypatch.setenv("A", "1")
    monkeypatch.delenv("B_TOKEN", raising=False)
    assert asked(["A"]) == {"A": "1"}
    with pytest.raises(InputError, match="B_TOKEN and C_TOKEN are not set here"):
        asked(["B_TOKEN", "A", "C_TOKEN"])
    assert secrets_of({"B_TOKEN": "x", "A": "1", "A_TOKEN": "y"}) == ["A_TOKEN", "B_TOKEN"]
    with pytest.raises(InputError, match="not a variable name"):
        Stage("a", cores=1, secrets=("a b",))
    assert json.loads(json.dumps(JobSpec("a", 1, 1.0, secrets=("X",)).secrets)) == ["X"]

"""Options of `sbatch` from a user's variables, for jobs that leave them open."""

import pytest
from asa.backends.slurm.facility import SlurmCommands
from asa.backends.slurm.link import SlurmJob
from asa.backends.slurm.options import checked, keys_of_38, rest_keys
from asa.backends.slurm.sbatch_variables import filled, sbatch_options, sbatch_settings

from asa.errors import SubmitRejectedError


def job(**changes):
    return SlurmJob("a", "#!/bin/sh\n", "/home", 4, 60.0, "out", "err", **changes)


def test_settings_of_the_site_file_come_before_the_variables(monkeypatch):
    monkeypatch.setenv("SBATCH_ACCOUNT", "astro")
    monkeypatch.setenv("SBATCH_PARTITION", "debug")
    settings = SlurmCommands(partition="batch").settings
    assert (settings.account, settings.partition) == ("astro", "batch")
    assert sbatch_settings({"SBATCH_QOS": "", "SBATCH_CONSTRAINT": "haswell"}) == {"constraint": "haswell"}


def test_flags_are_on_as_sbatch_takes_them():
    on = ("", "yes", "set", "1", "12")
    assert [sbatch_options({"SBATCH_OVERCOMMIT": word}) for word in on] == [("--overcommit",)] * len(on)
    assert [sbatch_options({"SBATCH_OVERCOMMIT": word}) for word in ("no", "0", "00")] == [()] * 3
    assert sbatch_options({"SBATCH_EXCLUSIVE": "user", "SBATCH_REQ_SWITCH": "2", "SBATCH_WAIT4SWITCH": "10"}) == (
        "--exclusive=user",
        "--switches=2@10",
    )


@pytest.mark.parametrize("own", [{"memory_bytes": 1 << 30}, {"options": ("--mem-per-gpu=1G",)}])
def test_memory_is_said_once(own):
    wished = sbatch_options({"SBATCH_MEM_PER_CPU": "2G", "SBATCH_WCKEY": "x"})
    assert filled(job(**own), wished).options[-1] == "--wckey=x"
    assert "--mem-per-cpu=2G" not in filled(job(**own), wished).options
    assert "--mem-per-cpu=2G" in filled(job(), wished).options


def test_a_hint_counts_more_than_a_variable_that_says_threads():
    wished = sbatch_options({"SBATCH_THREADS_PER_CORE": "2", "SBATCH_WCKEY": "x"})
    assert filled(job(options=("--hint=compute_bound",)), wished).options == ("--hint=compute_bound", "--wckey=x")
    assert "--threads-per-core=2" in filled(job(), wished).options


def test_gpus_become_the_jobs_own():
    assert filled(job(), ("--gpus=2",)) == job(gpus=2)
    assert filled(job(), ("--gpus=a100:2",)) == job(options=("--gpus=a100:2",))
    assert filled(job(gpus=1), ("--gpus=2",)) == job(gpus=1)


def test_what_rest_cannot_say_is_refused_by_its_variables_name(monkeypatch):
    monkeypatch.setenv("SBATCH_NO_KILL", "1")
    with pytest.raises(SubmitRejectedError, match="no word for --no-kill=1") as refused:
        rest_keys(checked(sbatch_options({"SBATCH_NO_KILL": "1"}), "a"), keys_of_38(), "v0.0.38", "a")
    assert "unset" in str(refused.value.hint)
    assert "SBATCH_NO_KILL" in str(refused.value.hint)

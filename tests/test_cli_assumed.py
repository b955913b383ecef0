"""The assumptions of `asa compare` about a user's own workflow."""

from dataclasses import replace

import pytest
from asa.backends.simulated import SimulatedSite

from asa.cli.assumed import age_rule, tell_assumed, with_known_run_times
from asa.runtimes import RunTime, RunTimes
from asa.studies.compare.study import Comparison
from asa.workflow import Stage, Workflow


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home without sites and without a bank."""
    monkeypatch.setenv("ASA_SITES", str(tmp_path / "sites"))
    monkeypatch.setenv("ASA_BANK", str(tmp_path / "bank"))
    (tmp_path / "sites").mkdir()
    return tmp_path


FLOW = Workflow("own", [Stage(name, cores=4, walltime_s=7200, command="true") for name in ("first", "second")])


def test_the_rule_is_the_user_s_then_the_saved_site_s_then_that_of_most_sites(home, capsys):
    assert age_rule(None, is_own=False) == (True, "")
    assert age_rule(True, is_own=True) == (True, "")
    assert age_rule(False, is_own=False) == (False, "")
    assert age_rule(None, is_own=True) == (False, "the rule of most sites")
    (home / "sites" / "lab.toml").write_text('backend = "slurm-cli"\n[observed.settings]\nage_accrues = true\n')
    assert age_rule(None, is_own=True) == (True, "as the file of site lab says")
    (home / "sites" / "other.toml").write_text('backend = "slurm-cli"\nage_accrues = true\n')
    assert age_rule(None, is_own=True)[1] == "the rule of most sites", "of two sites none is the saved one"
    (home / "sites" / "default.toml").write_text('backend = "slurm-cli"\nage_accrues = "yes"\n')
    assert age_rule(None, is_own=True) == (True, "as the file of site default says")
    (home / "sites" / "default.toml").write_text("backend = \n")
    assert age_rule(None, is_own=True)[0] is False
    assert "the saved site is not looked at" in capsys.readouterr().err


def test_run_times_of_earlier_runs_are_taken_where_the_file_says_none(home, capsys):
    site = SimulatedSite("hpc2n").capabilities
    assert with_known_run_times(FLOW, site) is FLOW
    RunTimes(home / "bank").observe([RunTime("own", "first", 4, 600.0, at_s=float(i), id=f"r{i}") for i in range(9)])
    known = with_known_run_times(FLOW, site)
    assert known.stages["first"].expected_s == pytest.approx(600.0, rel=0.05)
    assert known.stages["second"].expected_run_s is None
    assert "run times of first are those of earlier runs" in capsys.readouterr().err
    told = Workflow("own", [Stage("first", cores=4, walltime_s=7200, expected_run_s=60, command="true")])
    assert with_known_run_times(told, site).stages["first"].expected_run_s == 60


def test_run_times_on_this_computer_are_no_run_times_of_a_cluster(home, capsys, monkeypatch):
    """They are if it is this computer that is simulated. Those of a cluster count next to them."""
    monkeypatch.setattr("platform.node", lambda: "laptop.home")
    site = SimulatedSite("hpc2n").capabilities
    runs = RunTimes(home / "bank")
    runs.observe(RunTime("own", name, 4, 5.0, 1.0, "laptop", id=name) for name in ("first", "second"))
    runs.observe([RunTime("own", "second", 4, 600.0, 1.0, "other", id="there")])
    known = with_known_run_times(FLOW, site)
    assert known.stages["first"].expected_run_s is None
    assert known.stages["second"].expected_run_s == pytest.approx(600.0, rel=0.01)
    said = capsys.readouterr().err
    assert "Note: run times of second are those of earlier runs: asa walltimes.\n" in said
    assert "Note: run times of first on this computer are left out: elsewhere they may differ.\n" in said
    here = with_known_run_times(FLOW, replace(site, system="laptop"))
    assert here.stages["first"].expected_run_s == pytest.approx(5.0, rel=0.01)
    assert "left out" not in capsys.readouterr().err


SACCT = r"""#!/bin/sh
for word; do case $word in --delimiter=*) mark=${word#*=};; --name=*) names=${word#*=};; esac; done
[ -z "$ASA_TEST_SACCT_FAILS" ] || { echo "sacct: error: Unable to connect to the database" >&2; exit 1; }
job() { # number state start end name
    case ,$names, in *,$5,*) ;; *) return;; esac
    set -- "$1" "$1" me "$2" "$3" "$3" "$3" "$4" 120 4 4 1 n1 batch 0:0 "$5" ""
    for field; do printf '%s%s' "$field" "$mark"; done
    echo
}
job 1 COMPLETED 1000 1600 first
job 2 COMPLETED 2000 2600 first
job 3 COMPLETED 3000 3600 first
job 4 "CANCELLED by 0" 4000 4001 first
job 5 COMPLETED 5000 5300 alone
job 6 COMPLETED 6000 9000 own
"""
"""Plays sacct: three jobs called ``first`` ran for 10 min each."""


@pytest.fixture
def slurm(home, monkeypatch):
    """Put a Slurm's commands on the path; its accounting knows some jobs."""
    folder = home / "bin"
    folder.mkdir()
    for name, text in (("sacct", SACCT), ("sbatch", "#!/bin/sh\n"), ("squeue", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def test_run_times_are_those_of_past_jobs_of_the_stages_names(slurm, capsys):
    site = SimulatedSite("hpc2n").capabilities
    known = with_known_run_times(FLOW, site)
    assert known.stages["first"].expected_s == pytest.approx(600.0, rel=0.01)
    assert known.stages["second"].expected_run_s is None
    said = capsys.readouterr().err
    assert said == "Run times of 1 stage (first) are from 3 of your past jobs of that name in Slurm's accounting.\n"


def test_a_job_with_the_workflow_s_name_tells_of_its_only_stage(slurm, capsys):
    site = SimulatedSite("hpc2n").capabilities
    only = Workflow("own", [Stage("work", cores=4, walltime_s=7200, command="true")])
    assert with_known_run_times(only, site).stages["work"].expected_s == pytest.approx(3000.0, rel=0.01)
    assert "1 of your past jobs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        ({"expected_run_s": 60.0}, ""),
        ({"local": True, "cores": 1}, ""),
        (
            {},
            "No job of yours in the last 90 days is named strange in Slurm's accounting.\n",
        ),
    ],
)
def test_accounting_is_asked_only_for_run_times_that_are_not_known(slurm, capsys, stage, says):
    known = Stage("known", expected_run_s=1, cores=1, walltime_s=60, command="true")
    strange = Stage("strange", **{"cores": 4, "walltime_s": 7200, "command": "true", **stage})
    flow = Workflow("x y", [known, strange])
    assert with_known_run_times(flow, SimulatedSite("hpc2n").capabilities) is flow
    assert capsys.readouterr().err == says


def test_accounting_that_does_not_answer_is_no_reason_to_be_without_a_comparison(slurm, capsys, monkeypatch):
    site = SimulatedSite("hpc2n").capabilities
    monkeypatch.setenv("ASA_TEST_SACCT_FAILS", "1")
    assert with_known_run_times(FLOW, site) is FLOW
    assert "Note: past jobs cannot be read from Slurm's accounting: " in capsys.readouterr().err
    (slurm / "sacct").unlink()
    monkeypatch.setenv("PATH", str(slurm))
    assert with_known_run_times(FLOW, site) is FLOW
    assert capsys.readouterr().err == "", "nothing is asked where there is no sacct"


def test_it_says_first_what_is_assumed(capsys):
    comparison = Comparison(lambda _: FLOW, SimulatedSite("uppmax", age_accrues=False), (4,), ("asa",), (0,))
    tell_assumed(comparison, is_own=True, whose_rule="the rule of most sites")
    said = capsys.readouterr().err
    assert said.startswith("Simulated on uppmax, the busier of two models of real centres, of 9,720 cores, as no site")
    assert "Jobs gain no priority behind a dependency, the rule of most sites; --age-accrues" in said
    assert "run times are not known of first, second" in said
    tell_assumed(comparison, is_own=False, whose_rule="")
    assert "Simulated on" not in capsys.readouterr().err

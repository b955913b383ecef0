"""What is assumed of a user's own workflow where `asa compare` is told nothing."""

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


def test_it_says_first_what_is_assumed(home, capsys, monkeypatch):
    """And with which command the run times are found, where Slurm has kept them."""
    comparison = Comparison(lambda _: FLOW, SimulatedSite("hpc2n", age_accrues=False), (4,), ("asa",), (0,))
    monkeypatch.setenv("PATH", str(home))
    tell_assumed(comparison, is_own=True, is_chosen=False, whose_rule="the rule of most sites")
    said = capsys.readouterr().err
    assert said.startswith("Simulated on hpc2n, a model of a centre of ")
    assert "Jobs gain no priority behind a dependency, the rule of most sites; --age-accrues" in said
    assert "run times are not known of first, second" in said
    assert "sacct" not in said
    (home / "sacct").write_text("#!/bin/sh\n")
    (home / "sacct").chmod(0o755)
    tell_assumed(comparison, is_own=True, is_chosen=True, whose_rule="")
    said = capsys.readouterr().err
    assert "Simulated on" not in said
    assert "--name=first,second" in said

"""The assumptions of `asa compare` about a user's own workflow: the rule of age, and run times."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from textwrap import shorten
from typing import TYPE_CHECKING

from asa.cli.terminal import write_notice
from asa.errors import AsaError, StateError

if TYPE_CHECKING:
    from asa.backend import Capabilities, PastRun
    from asa.runtimes import RunTime
    from asa.runtimes.expected import KnowsRunTimes
    from asa.studies.compare.study import Comparison
    from asa.workflow import Stage, Workflow

_MAX_NAMES = 4  # stages that a line names
_MAX_REASON = 120  # characters
_LOOK_BACK_DAYS = 90
_TIMEOUT = "10s"


def age_rule(given: bool | None, *, is_own: bool) -> tuple[bool, str]:
    """Return whether age accrues behind a dependency, and where the rule is from; empty if the user gave it.

    `given`: the user's option, or None.
    `is_own`: whether the workflow is the user's own, and not one of the paper's.
    """
    if given is not None or not is_own:
        return given is not False, ""
    from asa.sites import read_site, saved_site

    try:
        if name := saved_site():
            site = read_site(name)
            rule = {**site.found, **site.settings}.get("age_accrues")
            if rule is not None:
                return str(rule).lower() in {"true", "yes", "1", "on"}, f"as the file of site {name} says"
    except AsaError as error:  # the comparison does without the saved site
        write_notice(f"Note: the saved site is not looked at: {error}")
    return False, "the rule of most sites"


def with_known_run_times(flow: Workflow, site: Capabilities) -> Workflow:
    """Set the run times of stages that have none, and print their source.

    They are from earlier runs in the bank, else from the user's past jobs of these names in Slurm's accounting.
    """
    from asa.estimators.store import default_folder
    from asa.runtimes import RunTimes

    try:
        flow, names, left_out = _expecting(flow, RunTimes(default_folder()), site)
    except StateError as error:
        write_notice(f"Note: run times in the bank are not used: {error}")
    else:
        if names:
            write_notice(f"Note: run times of {_listed(names)} are those of earlier runs: asa walltimes.")
        if only_here := [name for name in left_out if name not in names]:
            what = f"run times of {_listed(only_here)} on this computer"
            write_notice(f"Note: {what} are left out: elsewhere they may differ.")
    return _with_past_jobs(flow, site)


def _expecting(flow: Workflow, known: KnowsRunTimes, site: Capabilities) -> tuple[Workflow, list[str], Sequence[str]]:
    """Set the run times of stages without one.

    Returns: the workflow; the stages for which run times are known; those for which some on this computer are not used.
    """
    from asa.runtimes import expect

    stages = [replace(stage, learns_run=True) if _says_none(stage) else stage for stage in flow.stages.values()]
    expected = expect(type(flow)(flow.name, stages, walltime_s=flow.walltime_s), known, site)
    if not expected.forecasts or expected.trouble:
        return flow, [], expected.left_out
    return expected.workflow, list(expected.forecasts), expected.left_out


def _says_none(stage: Stage) -> bool:
    return not (stage.expected_run_s or stage.moldable or stage.local or stage.learns_run)


class _PastJobs:
    """The user's past jobs, by the names of stages; each counts as if it had the cores that the stage asks for now."""

    def __init__(self, flow: Workflow, ran: Sequence[PastRun], site: Capabilities) -> None:
        self._flow, self._site, self.ran = flow, site, sorted(ran, key=lambda run: run.end_s)

    def by_stage(self, workflow: str) -> dict[str, list[RunTime]]:
        return {name: self._of(workflow, stage) for name, stage in self._flow.stages.items() if _says_none(stage)}

    def _of(self, workflow: str, stage: Stage) -> list[RunTime]:
        from asa.runtimes import RunTime

        cores, names = stage.cores_on(self._site.cores_per_node), _job_names(self._flow, stage)
        return [
            RunTime(
                workflow, stage.name, cores, past.run_s, past.end_s, self._site.system,
                kind="exact" if past.completed else "at_least",
            )
            for past in self.ran
            if past.name in names
        ]  # fmt: skip


def _job_names(flow: Workflow, stage: Stage) -> set[str]:
    """Return the names that jobs of a stage may have had; a job with the workflow's name ran its only stage."""
    return {stage.name, flow.name} if len(flow.stages) == 1 else {stage.name}


def _with_past_jobs(flow: Workflow, site: Capabilities) -> Workflow:
    """Set the run times that are still unknown from the user's past jobs, where Slurm's accounting is at hand."""
    unknown = [
        stage
        for stage in flow.stages.values()
        if stage.expected_run_s is None
        and not (stage.moldable or stage.local)
        and (stage.is_one_job or stage.queues_in_parts)
    ]
    names = sorted(set[str]().union(*(_job_names(flow, stage) for stage in unknown)))
    if not names or shutil.which("sacct") is None:
        return flow
    try:
        ran = _past_runs(names)
    except AsaError as error:  # the comparison does without them
        why = shorten(str(error).partition("\n")[0], _MAX_REASON, placeholder=" ...")
        write_notice(f"Note: past jobs cannot be read from Slurm's accounting: {why}")
        return flow
    if ran is None:
        return flow
    past = _PastJobs(flow, ran, site)
    known = past.by_stage(flow.name)
    expecting, found, _ = _expecting(flow, past, site)
    if found := [name for name in found if known.get(name)]:
        count = sum(len(known[name]) for name in found)
        write_notice(
            f"Run times of {len(found)} {'stage' if len(found) == 1 else 'stages'} ({_listed(found)}) are from {count} "
            f"of your past jobs of {'that name' if len(found) == 1 else 'these names'} in Slurm's accounting."
        )
        return expecting
    write_notice(
        f"No job of yours in the last {_LOOK_BACK_DAYS} days is named {' or '.join(names[:_MAX_NAMES])} in Slurm's "
        "accounting."
    )
    return flow


def _past_runs(names: Sequence[str]) -> Sequence[PastRun] | None:
    """Ask the site, for some seconds only, for the user's past jobs of the given names.

    None if it keeps no records of them.
    """
    from asa.backend import RemembersRuns
    from asa.sites import open_facility

    opened = open_facility()
    if not isinstance(opened.facility, RemembersRuns):
        return None
    patient = open_facility(opened.backend, settings={**opened.settings, "timeout": _TIMEOUT})
    assert isinstance(patient.facility, RemembersRuns)
    return patient.facility.past_runs(names, time.time() - _LOOK_BACK_DAYS * 86400.0)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


def tell_assumed(comparison: Comparison, *, is_own: bool, whose_rule: str, centre: str = "") -> None:
    """Print what is simulated, before it starts: the site, the rule of age, and the source of run times.

    `is_own`: whether the workflow is the user's own, and the site is not chosen by the user.
    `centre`: a description of the site; by default that of a busy centre.
    """
    site = comparison.site.capabilities
    if is_own:
        of = centre or (
            f"the busier of two models of real centres, of {site.max_cores:,} cores, as no site with its size is saved "
            "(asa doctor --save NAME)"
        )
        write_notice(f"Simulated on {site.system}, {of}; --system NAME or --trace FILE takes another.")
    if whose_rule:
        gain, other = ("gain", "--no-age-accrues") if site.age_accrues else ("gain no", "--age-accrues")
        write_notice(f"Jobs {gain} priority behind a dependency, {whose_rule}; {other} for the other rule.")
    if comparison.assumed:
        write_notice(f"Note: {comparison.assumed}.")

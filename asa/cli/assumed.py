"""What `asa compare` assumes of a user's own workflow, from where, and how it says so: the rule of age, run times."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from asa.errors import AsaError, StateError

if TYPE_CHECKING:
    from asa.backend import Capabilities
    from asa.studies.compare.study import Comparison
    from asa.workflow import Stage, Workflow

_MAX_NAMES = 8  # stages in a command that is to be typed


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
            said = {**site.found, **site.settings}.get("age_accrues")
            if said is not None:
                return str(said).lower() in {"true", "yes", "1", "on"}, f"as the file of site {name} says"
    except AsaError as error:  # which is no reason to be without a comparison
        sys.stderr.write(f"Note: the saved site is not looked at: {error}\n")
    return False, "the rule of most sites"


def with_known_run_times(flow: Workflow, site: Capabilities) -> Workflow:
    """Set the run times of stages that do not say theirs from earlier runs in the bank, and say so."""
    from asa.estimators.store import default_folder
    from asa.runtimes import RunTimes, expect

    stages = [replace(one, learns_run=True) if _says_none(one) else one for one in flow.stages.values()]
    try:
        found = expect(type(flow)(flow.name, stages, walltime_s=flow.walltime_s), RunTimes(default_folder()), site)
    except StateError as error:
        sys.stderr.write(f"Note: run times in the bank are not used: {error}\n")
        return flow
    if not found.forecasts or found.trouble:
        return flow
    sys.stderr.write(f"Note: run times of {', '.join(found.forecasts)} are those of earlier runs: asa walltimes.\n")
    return found.workflow


def _says_none(stage: Stage) -> bool:
    return not (stage.expected_run_s or stage.moldable or stage.local or stage.learns_run)


def tell_assumed(comparison: Comparison, *, is_own: bool, is_chosen: bool, whose_rule: str) -> None:
    """Before the simulation, which takes its time: say which site it is of, by which rule, and with which run times."""
    site = comparison.site.capabilities
    if is_own and not is_chosen:
        sys.stderr.write(
            f"Simulated on {site.system}, a model of a centre of {site.max_cores:,} cores; --system NAME or --trace "
            "FILE takes another.\n"
        )
    if whose_rule:
        gain, other = ("gain", "--no-age-accrues") if site.age_accrues else ("gain no", "--age-accrues")
        sys.stderr.write(f"Jobs {gain} priority behind a dependency, {whose_rule}; {other} for the other rule.\n")
    if not comparison.assumed:
        return
    sys.stderr.write(f"Note: {comparison.assumed}.\n")
    names = comparison.guessed
    if is_own and shutil.which("sacct") and len(names) <= _MAX_NAMES:
        command = ["sacct", "-X", "-S", "now-90days", "-s", "CD", "-o", "JobName,Elapsed", f"--name={','.join(names)}"]
        sys.stderr.write(f"Earlier jobs of these names ran as long as this shows:\n  {shlex.join(command)}\n")

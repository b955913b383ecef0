"""Begins a run: makes its plan, and checks all that can be checked before anything is submitted."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from asa.backend import Backend, Capabilities, Setting
from asa.core import plugins, safe
from asa.core.late import dataclass
from asa.core.variables import asked
from asa.errors import InputError
from asa.estimators.bank import PUBLISHED, login_name
from asa.estimators.choice import AUTO, BLIND, choose
from asa.runner.folder import RunPlan
from asa.runner.kinds import UnitsOfRun
from asa.runner.outlook import check_possible, check_strategy
from asa.sites import OpenedSite
from asa.spec.withheld import stays_in_words
from asa.strategies.base import ForecastKind, lacking
from asa.waits import QueueEvent
from asa.workflow import Stage, Workflow

if TYPE_CHECKING:
    from asa.runner.state import RunState


@dataclass(frozen=True, slots=True)
class Chosen:
    """The estimator that predicts the waits of a run."""

    estimator: str
    why: str = ""  # half a sentence; empty if the user named it, or nothing is predicted
    # events that the look at the queue found; None if the queue was not read
    events: Sequence[QueueEvent] | None = None


_DEFAULT = Chosen(BLIND)


def choose_estimator(wanted: str, strategy: str, world: Backend, history: int) -> Chosen:
    """Choose the wanted estimator; if none is wanted, read the queue, and choose the best for what is visible.

    Raises `InputError`: there is no such estimator or strategy.
    """
    forecast = check_strategy(strategy).forecast
    if forecast is ForecastKind.PUBLISHED:
        return Chosen(PUBLISHED, "the strategy's own, which learns from your own waits alone")
    if wanted != AUTO:
        plugins.load("asa.estimators", wanted)
        return Chosen(wanted)
    if forecast is not ForecastKind.LEARNED:
        return Chosen(BLIND)
    if not history:
        return Chosen(BLIND, "with --history 0 the queue is not looked at")
    events = world.queue_events(history, ends=True)
    choice = choose(events, login_name())
    return Chosen(choice.name, choice.why, events)


def plan_run(
    workflow: Workflow,
    opened: OpenedSite,
    capabilities: Capabilities,
    *,
    strategy: str,
    estimator: Chosen = _DEFAULT,
    name: str = "",
    bank: Path | None = None,
    history: int = 2000,
    seed: int = 0,
    source: str = "",
    parameters: Mapping[str, Setting] | None = None,
    width: int | None = None,
    folder: Path | None = None,
    only_look: bool = False,
    fail_fast: bool = False,
) -> RunPlan:
    """Make the plan of a run, and refuse a plan that cannot succeed.

    `bank`: folder of the bank, made if missing; None for none.
    `source`, `parameters`, `width`: the workflow's file, its parameters, and the one width for stages of several
    shapes, if given.
    `only_look`: nothing will be submitted, so stages may have nothing to run, and the bank is not touched.
    Raises `InputError`: there is no such strategy, a stage has nothing to run, a job could never start, the bank cannot
    be written, or a path is not UTF-8.
    """
    how = check_strategy(strategy)
    work = str((folder or Path.cwd()).absolute())
    kept_in = str(bank.absolute()) if bank is not None else ""
    check_text(work, kept_in, source, *map(str, opened.settings.values()))
    plan = RunPlan(
        id=secrets.token_hex(8),
        name=name or workflow.name,
        workflow=workflow.name,
        stages=tuple(_patient(stage, opened.input_patience_s) for stage in workflow.stages.values()),
        walltime_s=workflow.walltime_s if workflow.says_walltime else None,
        strategy=strategy,
        estimator=estimator.estimator,
        estimator_why=estimator.why,
        backend=opened.backend,
        settings=dict(opened.settings),
        capabilities=UnitsOfRun.site_for(how, workflow, capabilities),
        folder=work,
        seed=seed,
        history=history,
        bank=kept_in,
        created_s=time.time(),
        version=version("asa-client"),
        source=source,
        parameters=dict(parameters or {}),
        width=width,
        fail_fast=fail_fast,
        share=opened.share,
    )
    if not only_look:
        check_commands(source or f"workflow {workflow.name!r}", plan.stages)
        check_secrets(plan.stages)
        check_bank(bank)
    if lack := lacking(how, capabilities):
        raise InputError(lack, where=f"strategy {strategy!r}", hint="Take `per-stage`, or `asa-plan`.")
    check_possible(plan, how)
    return plan


def notes_before(stages: Collection[Stage], folder: str) -> Iterator[str]:
    """Return notes for the user before a run begins, a line each: which variables of this process jobs will not get.

    `stages`, `folder`: the run's stages, and the folder in which their commands run.
    """
    return stays_in_words(stages, folder)


def check_secrets(stages: Iterable[Stage]) -> None:
    """Before the run's folder is written, refuse stages that ask for variables which are not set here.

    Raises `InputError`, which names the first such stage.
    """
    for stage in stages:
        asked(stage.secrets, f"stage {stage.name!r}")


def check_resumable(state: RunState, workflow: Workflow, again: Sequence[str], *, retry: bool) -> None:
    """Refuse to resume a run if stages still to be submitted ask for variables that are not set here.

    `workflow`: the workflow as resumed. `again` and `retry`: the stages that an ended run is to run again. Raises
    `InputError`: such a variable is not set.
    """
    if state.outcome is not None and not (retry or again):
        return
    views = state.taken_up(again) if state.outcome is not None else state.stages
    check_secrets(
        workflow.stages[name] for name, view in views.items() if view.job_id is None and not view.phase.is_settled
    )


def _patient(stage: Stage, patience_s: float | None) -> Stage:
    """Set the time that a stage waits for its inputs to that of its site, unless the stage has a time of its own."""
    return stage if stage.input_patience_s is not None else replace(stage, input_patience_s=patience_s)


def check_commands(where: str, stages: Iterable[Stage], *, is_model: bool = False) -> None:
    """Refuse stages that would run nothing.

    `is_model`: the workflow is a model, whose stages have names in place of commands.
    """
    idle = [stage.name for stage in stages if stage.is_idle or (is_model and stage.command.strip() == stage.name)]
    if idle:
        raise InputError(
            f"there is no command in {'stage' if len(idle) == 1 else 'stages'} {', '.join(idle)}",
            where=where,
            hint=f"It is a model for `asa compare {where} --cores 112`; commands are in workflow files."
            if is_model
            else "Write `command` in a workflow file; or use --dry-run.",
        )


def bank_trouble(folder: Path) -> str:
    """Make a bank's folder if it is missing; return why nothing can be stored in it, or an empty text."""
    what = "made"
    try:
        safe.provide_folder(folder)
        what = "written"
        with TemporaryFile(dir=folder) as file:
            file.write(b"\n")
        return safe.refused(folder)[0]
    except OSError as error:
        return f"cannot be {what}: {error.strerror or error}"


def bank_refusal(folder: Path | None) -> str:
    """Return why a bank that others own or can change is not used, and what to do; empty if it may be used."""
    trouble = repair = ""
    with suppress(OSError):  # the folder is made later, or its first use reports the error
        trouble, repair = safe.refused(folder) if folder is not None else ("", "")
    return trouble and f"{trouble}: it is not used, and nothing learned. {repair}"


def check_bank(folder: Path | None) -> None:
    """Refuse a bank in which nothing can be stored."""
    if folder is None:
        return
    trouble = bank_trouble(folder)
    with suppress(OSError):
        safe.check(folder)
    if trouble:
        hint = "Nothing was submitted. Name another folder with --bank or ASA_BANK, or use none: --bank none."
        raise InputError(trouble, where=f"the bank {folder}", hint=hint)


def check_text(*texts: str) -> None:
    """Refuse texts that cannot be stored in JSON: paths may contain bytes that are not UTF-8."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError("is not UTF-8", where=ascii(text), hint="Rename it, or work in another folder.") from error

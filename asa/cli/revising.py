"""Changes to a run before it is resumed: a corrected workflow file, another bank, another estimator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from asa.cli.terminal import write_notice
from asa.core import plugins
from asa.errors import InputError
from asa.workflow import Workflow

if TYPE_CHECKING:
    from asa.runner import RunFolder
    from asa.runner.state import RunState
    from asa.workflow import Stage

_NO_BANK = "none"


def bank_folder(given: str | None) -> Path | None:
    """Return the folder of the bank that the user names; None for no bank."""
    from asa.estimators.store import default_folder

    if given == _NO_BANK:
        return None
    return (Path(given) if given else default_folder()).absolute()


def take_bank(folder: RunFolder, given: str | None) -> None:
    """Let a run store its waits in another bank from now on; report a present bank that cannot be written.

    Raises `InputError`: the bank that the user names cannot be made or written.
    """
    from asa.runner.begin import bank_trouble, check_bank

    if given is not None:
        bank = bank_folder(given)
        check_bank(bank)
        with folder.driven():
            folder.revise(bank=str(bank) if bank is not None else "")
    elif folder.plan.bank and (trouble := bank_trouble(Path(folder.plan.bank))):
        write_notice(
            f"Note: the bank {folder.plan.bank} {trouble}. The run goes on without learning its waits; --bank DIR "
            f"names another bank."
        )


def check_estimator(given: str | None) -> None:
    """Refuse an unknown estimator, and `auto`, which chooses only when a run begins and looks at the queue."""
    if given is not None:
        plugins.load("asa.estimators", given)


def take_estimator(folder: RunFolder, given: str | None) -> None:
    """Let another estimator predict a run's waits from now on."""
    if given is not None:
        with folder.driven():
            folder.revise(estimator=given, estimator_why="")


def take_strategy(folder: RunFolder, chosen: str) -> None:
    """Let another strategy, or the same with other settings, plan a run from now on."""
    if chosen != folder.plan.strategy:
        with folder.driven():
            folder.revise(strategy=chosen)


def changed_file(folder: RunFolder, state: RunState, again: Collection[str], *, goes_again: bool) -> Path | None:
    """Return a run's own workflow file if uncompleted stages have changed in it, and report that.

    `goes_again`: whether the run had ended and continues now, so that it can take the changes; if not, None is
    returned.
    """
    from asa.cli.pooled import workflow_for
    from asa.spec import load_workflow

    source = folder.plan.source
    if not source or not Path(source).is_file():
        return None
    once_more = state.workflow.with_followers(again)
    left = [name for name, view in state.stages.items() if view.phase.value != "done" or name in once_more]
    try:
        flow = workflow_for(folder.plan.strategy, load_workflow(source, dict(folder.plan.parameters)))
    except InputError as error:
        write_notice(f"Note: the run goes on as it was begun, for its file cannot be used as it is now: {error}")
        return None
    if set(flow.stages) != set(state.workflow.stages):
        write_notice(f"Note: the run goes on as it was begun, for {source} has other stages now.")
        return None
    stages = _as_run(flow, folder)
    changed = [name for name in left if _is_changed(stages[name], state.workflow.stages[name])]
    if not changed:
        return None
    begin = f"Note: {'stage' if len(changed) == 1 else 'stages'} {', '.join(changed)} changed since the run began"
    if goes_again:
        write_notice(f"{begin}: {source} and its scripts are taken as they are now.")
        return Path(source)
    write_notice(f"{begin}. A run that has not ended goes on as it was begun.")
    return None


def _as_run(flow: Workflow, folder: RunFolder) -> Mapping[str, Stage]:
    """Return a file's stages as the run has them: with its width, and offered the clusters of its site."""
    from asa.runner.clusters import on_clusters

    width = folder.plan.width
    return on_clusters(flow if width is None else flow.fixed(width), folder.plan.capabilities).stages


def _is_changed(file: Stage, run: Stage) -> bool:
    """Whether a stage differs from the run's version of it, apart from the run's own additions."""
    if run.takes_turns:
        return (file.command, file.script) != (run.command, run.script)
    return _unlearned(_as_patient(file, run)) != _unlearned(run)


def _as_patient(file: Stage, run: Stage) -> Stage:
    """Keep the time that a stage waits for its inputs (the site may have set it) unless the workflow file sets it."""
    return file if file.input_patience_s is not None else replace(file, input_patience_s=run.input_patience_s)


def revise(
    folder: RunFolder,
    state: RunState,
    file: Path,
    again: Collection[str] = (),
    parameters: Mapping[str, str] | None = None,
) -> Workflow:
    """Read an ended run's remaining stages from its present workflow file; completed stages stay unchanged.

    Raises `InputError`: the file has another workflow, or one of its jobs could never run.
    """
    from asa.cli.advise import learned
    from asa.cli.pooled import workflow_for
    from asa.runner.begin import check_commands
    from asa.runner.outlook import check_possible, check_strategy
    from asa.spec import load_workflow, parameters_of

    kept_parameters = {k: v for k, v in folder.plan.parameters.items() if k in parameters_of(file)}
    given = {**kept_parameters, **(parameters or {})}
    flow = workflow_for(folder.plan.strategy, load_workflow(file, given))
    width = folder.plan.width
    once_more = state.workflow.with_followers(again)
    done = {name for name, view in state.stages.items() if view.phase.value == "done" and name not in once_more}
    walltime_s = flow.walltime_s if flow.says_walltime else None
    revised = Workflow(flow.name, _merged(state.workflow, flow, done, file), walltime_s=walltime_s)
    file_stages, stages = _as_run(flow, folder), state.workflow.stages
    if kept := [stage for stage in sorted(done) if _is_changed(file_stages[stage], stages[stage])]:
        whose = "stage" if len(kept) == 1 else "stages"
        write_notice(f"Note: {whose} {', '.join(kept)} completed; changes there have no effect.")
    bank = Path(folder.plan.bank) if folder.plan.bank else None
    revised = workflow_for(folder.plan.strategy, learned(revised, bank, folder.plan.capabilities))
    if width is not None:
        revised = revised.fixed(width)
    check_commands(str(file), [revised.stages[name] for name in revised.order if name not in done])
    plan = replace(folder.plan, stages=tuple(revised.stages.values()), walltime_s=revised.walltime_s)
    check_possible(plan, check_strategy(plan.strategy))
    with folder.driven():
        folder.revise(source=str(file.absolute()), parameters=given)
    return revised


def _unlearned(stage: Stage) -> Stage:
    """Return a stage without learned run times."""
    if not stage.learns_run:
        return stage
    moldable = stage.moldable and replace(stage.moldable, run_at=())
    return replace(stage, expected_run_s=None, run_spread=0.0, moldable=moldable)


def _merged(run: Workflow, flow: Workflow, done: set[str], file: Path) -> tuple[Stage, ...]:
    """Take the completed stages from the run, and the others from the file."""
    before = tuple(run.stages.values())
    if set(run.stages) != set(flow.stages):
        raise InputError(
            f"its stages are {', '.join(flow.stages)}; the run's are {', '.join(run.stages)}",
            where=str(file),
            hint="A run keeps its stages. For others start a new run.",
        )
    for stage in before:
        if stage.name in done and set(flow.stages[stage.name].after) != set(stage.after):
            raise InputError(
                f"stage {stage.name!r}, which has completed, now depends on other stages",
                where=str(file),
                hint="Keep its `after` as it was, or start a new run.",
            )
    merged = tuple(stage if stage.name in done else _as_patient(flow.stages[stage.name], stage) for stage in before)
    if Workflow(run.name, merged).order != run.order:
        raise InputError(
            "the stages come in another order", where=str(file), hint=f"It began with: {', '.join(run.order)}."
        )
    return merged

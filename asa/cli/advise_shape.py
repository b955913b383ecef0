"""``asa walltimes --shape``: advises on the shape of a stage or a command, and on another shape to try."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from asa.cli.given import price_given
from asa.core.late import dataclass
from asa.errors import InputError, UnknownNameError, WorkflowError
from asa.units import MAX_CORES, parse_price

if TYPE_CHECKING:
    from pathlib import Path

    from asa.backend import Capabilities
    from asa.cli.given import Given
    from asa.cli.known_waits import KnownWaits
    from asa.cli.one_command import Command
    from asa.estimators.joint import JointForecast
    from asa.runtimes import RunForecast, RunTime, RunTimes
    from asa.runtimes.comparing import Compared, Offer
    from asa.runtimes.trials import Trial, Untried, UntriedOffer
    from asa.runtimes.widths import Seen
    from asa.shapes import RunAt
    from asa.sites import OpenedSite
    from asa.waits import QueuedJob
    from asa.workflow import Stage, Workflow


@dataclass(frozen=True, slots=True)
class Destination:
    """The system on which jobs are to run, and the known waits there."""

    system: str
    known: KnownWaits | None
    why: str  # why no waits are known; empty if some are
    site: Capabilities  # as far as it is known
    is_seen: bool  # whether the batch system itself was asked
    price_s: float | None  # seconds that a core-hour is worth; None if no price is given
    price_of: str  # the source of the price

    def partition(self, named: str) -> str:
        """Name the partition that a job is sent to."""
        return named or (self.known.partitions[0] if self.known is not None else "")

    def impossible(self, cores: int, walltime_s: float, partition: str) -> str:
        """Return why a job cannot run, or why its wait cannot be predicted; empty if it can run and be predicted."""
        from asa.backend import JobSpec
        from asa.cli.known_waits import check_width

        if self.is_seen:
            spec = JobSpec("asa-advise", cores=cores, walltime_s=walltime_s, partition=partition)
            if words := self.site.impossible(spec):
                return words
        if self.known is None:
            return ""
        where = self.partition(partition)
        if not self.known.live and where not in self.known.digest.widest:
            return f"no job in partition {where!r} is known"
        try:
            check_width(self.known, cores, where)
        except InputError as error:
            return error.message
        return ""

    def request(self, cores: int, walltime_s: float, partition: str) -> QueuedJob:
        """Make a request that would be submitted now."""
        assert self.known is not None, "who knows no waits makes no requests"
        return self.known.request(cores, walltime_s, self.partition(partition))


def find_destination(
    where: Where, last: str, partitions: Sequence[str], find: Callable[[], OpenedSite | None], *, is_command: bool
) -> Destination:
    """Find the system on which jobs are to run, as `asa predict` does; a bank without waits for it is no error.

    `last`: the system on which the stages ran last; empty if not known.
    `is_command`: whether the job is a single command, known only by its options.
    """
    from asa.backend import Capabilities
    from asa.cli.known_waits import how_to_begin
    from asa.cli.predict import find_known
    from asa.core.computer import is_here

    known, why, system = None, "", where.system
    opened = find() if system is None else None
    try:
        if opened is not None:
            known = find_known(where.bank, None, partitions, None, lambda: opened)
        else:
            named = system if system is not None else last or None
            known = find_known(where.bank, named, partitions, None, lambda: None)
    except InputError as error:
        is_unknown = is_command and isinstance(error, UnknownNameError)
        is_named = opened is not None and not opened.why
        if is_unknown or is_named or error.where in {"--system", "--partition"}:
            raise  # the user can correct the option
        why = " ".join(words for words in (error.where, f"{error.message}.", error.hint) if words)
    if known is not None and system is None and not known.live and is_here(known.system):
        why = f"the bank knows only waits of jobs on this computer, in a queue of its own. {how_to_begin(where.bank)}"
        known = None
    name = known.system if known is not None else system or last
    site = known.site if known is not None else None
    price, price_of = price_given(where.price, *((opened.price, opened.file) if opened is not None else ("", None)))
    price_s = None if price is None else parse_price(price)
    facts = site or Capabilities(name, MAX_CORES, 0, age_accrues=False)
    return Destination(name, known, why, facts, site is not None, price_s, price_of)


@dataclass(slots=True)
class StageAdvice:
    """The advice on the shapes of a stage."""

    name: str
    what: str  # whether widths are `cores` or `nodes`
    own: int | None = None  # index in `offers` of the present shape
    offers: list[Offer] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)  # where each run time is from, in a word or two
    counts: list[int] = field(default_factory=list)  # the number of runs at each width
    compared: Compared | None = None
    trial: Trial | None = None
    trouble: str = ""  # why there is no advice
    left_out: list[str] = field(default_factory=list)  # the shapes that cannot be asked for, and why


@dataclass(frozen=True, slots=True)
class _Material:
    """A stage's advice, and the untried widths whose waits are to be predicted."""

    advice: StageAdvice
    untried: Sequence[tuple[Untried, int, str, float]]  # each with its cores, walltime in seconds and partition


def advise_shapes(
    flow: Workflow, times: Sequence[RunTime], destination: Destination, *, is_asked: bool = True, strict: bool = False
) -> list[StageAdvice]:
    """Advise on each stage that is submitted to the batch system.

    `is_asked`: whether the stages' own shapes are those asked for now.
    `strict`: whether an impossible shape is an error.

    Raises `InputError`: no run time is known at all, or a shape is impossible.
    """
    made = []
    for name in flow.order:
        stage = flow.stages[name]
        if not stage.local:
            own = [run for run in times if run.stage == name]
            made.append(_material(stage, own, destination, is_asked=is_asked, strict=strict))
    if not any(material.advice.offers or material.advice.left_out for material in made):
        why = next((material.advice.trouble for material in made), "it has no stage that runs in a batch system")
        hint = 'Give it in the file, as in expected = "95min", or run it: each `asa run` records run times.'
        raise InputError(why, where=f"workflow {flow.name!r}", hint=hint)
    if destination.known is not None:
        _compare(made, destination)
    return [material.advice for material in made]


def _material(
    stage: Stage, times: Sequence[RunTime], destination: Destination, *, is_asked: bool, strict: bool
) -> _Material:
    from asa.runtimes.widths import Seen, as_seen, with_widths

    advice = StageAdvice(stage.name, "cores" if stage.cores is not None else "nodes")
    if stage.cores is None and not destination.site.cores_per_node:
        advice.trouble = "it asks for nodes, and only the batch system tells how many cores a node has"
        return _Material(advice, ())
    try:
        offered = with_widths(stage, times, destination.site)
        seen = as_seen(offered, times, destination.site)
    except WorkflowError as error:
        advice.trouble = error.message
        return _Material(advice, ())
    is_guess = seen.forecast is not None and seen.forecast.is_guess and not seen.at_widths
    if is_guess and _points(stage):
        seen, is_guess = Seen(offered), False  # the run times in the file are better than guesses from other runs
    if seen.forecast is None and not _points(seen.stage):
        advice.trouble = "its run time is not known"
        return _Material(advice, ())
    _offer(advice, stage, seen, destination, is_asked=is_asked, strict=strict)
    # most programs that run on one core cannot use more
    is_serial = stage.moldable is None and stage.cores == 1 and len(seen.at_widths) < 2
    is_tried = bool(advice.offers) and not is_guess and not is_serial
    return _Material(advice, list(_untried(seen.stage, destination)) if is_tried else ())


def _points(stage: Stage) -> tuple[RunAt, ...]:
    """Return the known run times of a stage, by width."""
    from asa.shapes import RunAt

    if stage.moldable is not None and stage.moldable.run_at:
        return stage.moldable.run_at
    return () if stage.expected_run_s is None else (RunAt(stage.width, stage.expected_run_s, stage.run_spread),)


def _offer(
    advice: StageAdvice, stage: Stage, seen: Seen, destination: Destination, *, is_asked: bool, strict: bool
) -> None:
    """Add each shape that can be asked for to the advice."""
    from asa.cli.advised_shapes import shape_text
    from asa.runtimes.comparing import Offer

    moldable, known_widths = seen.stage.moldable, {shape.width for shape in seen.stage.shapes}
    for width in moldable.widths if moldable is not None else ():
        if width not in known_widths:
            advice.left_out.append(f"{shape_text(width, '', advice.what)}: its run time there is not known")
    for shape in sorted(seen.stage.shapes, key=lambda known_shape: (known_shape.partition, known_shape.width)):
        cores = seen.stage.shaped(shape).cores_on(destination.site.cores_per_node)
        words = destination.impossible(cores, shape.walltime_s, shape.partition)
        if words:
            if strict:
                raise InputError(words, where=f"{shape.width} {advice.what}", hint="Ask for what is available there.")
            advice.left_out.append(f"{shape_text(shape.width, shape.partition, advice.what)}: {words}")
            continue
        if is_asked and (shape.width, shape.partition) == (stage.width, stage.partition):
            advice.own = len(advice.offers)
        known = seen.at_widths.get(shape.width)
        if known is None and shape.width == stage.width and seen.forecast is not None and not seen.at_widths:
            known = seen.forecast
        advice.offers.append(Offer(cores, shape))
        advice.counts.append(0 if known is None else known.count)
        advice.origins.append(_origin(stage, seen, shape.width, known))


def _origin(stage: Stage, seen: Seen, width: int, known: RunForecast | None) -> str:
    """Return the source of a run time, in a word or two."""
    from asa.shapes import Scaling

    if known is not None:
        return "a guess" if known.is_guess else f"{known.count} {'run' if known.count == 1 else 'runs'}"
    if width in {point.width for point in _points(stage)}:
        return "given"
    known_widths = [point.width for point in _points(seen.stage)]
    law = (seen.stage.moldable.scaling if seen.stage.moldable is not None else Scaling()).law
    if law == "measured":
        return "between" if min(known_widths) < width < max(known_widths) else "a guess"
    return law


def _untried(stage: Stage, destination: Destination) -> Iterator[tuple[Untried, int, str, float]]:
    """Return the widths that may be worth a trial, each as a request; leave out widths that cannot be requested."""
    from asa.runtimes.trials import untried
    from asa.shapes import Moldable

    if stage.cores is not None and stage.nodes is not None:
        return
    moldable = stage.moldable or Moldable()
    per_node, unit = destination.site.cores_per_node, stage.cpus_per_task if stage.nodes is None else 1
    for candidate in untried(_points(stage), moldable.scaling, moldable.widths, unit):
        cores, nodes = (candidate.width, 0) if stage.cores is not None else (0, candidate.width)
        held = stage.allocated(cores, nodes, per_node)
        walltime_s = candidate.run_s[2] * stage.walltime_s / stage.expected_s
        for partition in moldable.partitions or (stage.partition,):
            if candidate.width <= MAX_CORES and not destination.impossible(held, walltime_s, partition):
                yield candidate, held, partition, walltime_s


def _compare(made: Iterable[_Material], destination: Destination) -> None:
    """Judge the shapes of all stages in the same futures, and choose."""
    from asa.runtimes.comparing import DEFAULT_TOLL, Toll, compare
    from asa.runtimes.trials import best_trial

    made = [material for material in made if material.advice.offers]
    price_s = 0.0 if destination.site.charges == "used" else destination.price_s
    toll = DEFAULT_TOLL if price_s is None else Toll(price_s=price_s)
    asked = {material.advice.name: _requests(material, destination) for material in made}
    jobs = list(dict.fromkeys(job for requests in asked.values() for job in requests))
    if not jobs or destination.known is None:
        return
    joint = destination.known.bank.predict_together(jobs)
    numbers = {job: number for number, job in enumerate(jobs)}
    for material in made:
        columns = [numbers[job] for job in asked[material.advice.name]]
        count = len(material.advice.offers)
        compared = compare(material.advice.offers, joint.only(columns[:count]), material.advice.own, toll)
        material.advice.compared = compared
        material.advice.trial = best_trial(compared, list(_candidates(material, joint, columns[count:])), toll)


def _requests(material: _Material, destination: Destination) -> list[QueuedJob]:
    offered = [(offer.cores, offer.shape.walltime_s, offer.shape.partition) for offer in material.advice.offers]
    return [destination.request(*asked) for asked in (*offered, *((c, w, p) for _, c, p, w in material.untried))]


def _candidates(material: _Material, joint: JointForecast, columns: Sequence[int]) -> Iterator[UntriedOffer]:
    """Return the shapes that may be tried; leave out the shape that is best by the known run times."""
    from asa.runtimes.trials import UntriedOffer

    assert material.advice.compared is not None
    compared = material.advice.compared
    best = {material.advice.offers[index].shape.width for index in (compared.best, compared.least)}
    for (untried, cores, partition, _), column in zip(material.untried, columns, strict=True):
        if untried.width not in best:
            yield UntriedOffer(untried, cores, partition, joint.only([column]))


# ---------------------------------------------------------------------- the command


@dataclass(frozen=True, slots=True)
class Where:
    """The options that choose the system, its partitions and the bank."""

    system: str | None
    bank: Path | None
    backend: str | None
    site: str | None
    bank_only: bool
    price: str | None = None


def tell_shapes(
    file: Path | None, command: Command, where: Where, given: Given, runs: RunTimes, *, as_json: bool
) -> None:
    """Print advice on the stages of a workflow's file, or on a command.

    `given`: parameters of the file and settings of the backend.
    """
    from asa.cli.advised_shapes import as_dict, print_advice
    from asa.cli.predict import find_asked
    from asa.cli.runs import print_document
    from asa.sites import open_facility
    from asa.spec import load_workflow

    is_command = file is None
    try_options = partial(open_facility, where.backend, where.site)
    parameters, settings = given.split(str(file or ""), try_options)
    flow = load_workflow(file, parameters) if file is not None else command.flow()
    times = runs.of(flow.name) if file is not None else []
    destination = find_destination(
        where,
        next((run.system for run in reversed(times)), ""),
        _partitions(flow, command.partition),
        lambda: find_asked(where.backend, where.site, settings, bank_only=where.bank_only),
        is_command=is_command,
    )
    advice = advise_shapes(
        flow, times, destination, is_asked=not is_command or command.now is not None, strict=is_command
    )
    if as_json:
        head = {
            "workflow": None if is_command else flow.name,
            "system": destination.system,
            "waits": destination.why or "known",
            "price_s_per_core_hour": destination.price_s,
            "price_from": destination.price_of or "default",
        }
        print_document({**head, "stages": [as_dict(stage_advice) for stage_advice in advice]})
        return
    name = f"{flow.name}{f' on {destination.system}' if destination.system else ''}"
    print_advice(advice, destination, name[0].upper() + name[1:] if is_command else name)


def _partitions(flow: Workflow, given: str | None) -> list[str]:
    """Name the partitions whose waits are needed, the default partition first."""
    stages = [stage for stage in flow.stages.values() if not stage.local]
    named = [shape.partition for stage in stages for shape in stage.shapes]
    first = [part.strip() for part in given.split(",")] if given is not None else []
    if not first and "" in named:
        return []
    return list(dict.fromkeys([*first, *filter(None, named)]))

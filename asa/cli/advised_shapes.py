"""Prints what `asa walltimes --shape` found, as tables, sentences or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from asa.units import core_hours, format_core_hours, format_duration, format_price

if TYPE_CHECKING:
    from asa.cli.advise_shape import Destination, StageAdvice
    from asa.core.console import Console
    from asa.runtimes.comparing import Compared
    from asa.runtimes.trials import Trial
    from asa.shapes import Shape

_SPREAD = ("p10", "p50", "p90")
_P90_OF_NORMAL = 1.2816
_WIDE = 104
_SAME_S = 30.0  # ends that differ by less are shown as equal
_SAME_HOURS = 0.05
_SAME = 0.02  # small values are shown as equal if they differ by less than this share of either
_NOTHING = 0.005  # a smaller share of the time to the end counts as none


def as_dict(advice: StageAdvice) -> dict[str, Any]:
    """Return the advice on a stage as JSON-ready data."""
    compared, trial = advice.compared, advice.trial
    return {
        "stage": advice.name,
        "unit": advice.what,
        "best": None if compared is None else compared.best,
        "asked": advice.own,
        "why": " ".join(sentences(advice)),
        "shapes": [_shape_dict(advice, index) for index in range(len(advice.offers))],
        "trial": None if trial is None else _trial_dict(trial),
        "left_out": list(advice.left_out),
    }


def _shape_dict(advice: StageAdvice, index: int) -> dict[str, Any]:
    offer, compared = advice.offers[index], advice.compared
    known: dict[str, Any] = {"wait_s": None, "end_in_s": None, "ends_before_best": None}
    if compared is not None:
        known = {
            "wait_s": dict(zip(_SPREAD, compared.wait_s(index), strict=True)),
            "end_in_s": dict(zip(_SPREAD, compared.end_s(index), strict=True)),
            "ends_before_best": None if index == compared.best else compared.sooner(index, compared.best),
        }
    return {
        "width": offer.shape.width,
        "partition": offer.shape.partition,
        "cores": offer.cores,
        "walltime_s": offer.shape.walltime_s,
        "runs": advice.counts[index],
        "from": advice.origins[index],
        "run_s": dict(zip(_SPREAD, run_range_s(offer.shape), strict=True)),
        **known,
        "core_hours": offer.core_hours,
    }


def _trial_dict(trial: Trial) -> dict[str, Any]:
    return {
        "is_worth_it": trial.is_worth_it,
        "width": trial.untried.width,
        "partition": trial.partition,
        "cores": trial.cores,
        "run_s": dict(zip(_SPREAD, trial.untried.run_s, strict=True)),
        "best_up_to_run_s": trial.needed_s,
        "probability_best": trial.likely,
        "gain_s": trial.gain_s,
        "gain": trial.share,
        "core_hours": dict(zip(("p10", "p90"), trial.core_hours, strict=True)),
    }


def run_range_s(shape: Shape) -> tuple[float, float, float]:
    """Return p10, p50 and p90 of a run time."""
    import math

    away = math.exp(_P90_OF_NORMAL * shape.spread)
    return shape.run_s / away, shape.run_s, shape.run_s * away


# ---------------------------------------------------------------------- sentences


def sentences(advice: StageAdvice) -> Iterator[str]:
    """Return sentences on which shape to ask for, why, and which other shape is worth a trial."""
    compared = advice.compared
    if advice.trouble:
        yield f"{_begun(advice.trouble)}."
    if compared is None:
        return
    yield from _choice(advice, compared)
    best = advice.offers[compared.best]
    if not advice.counts[compared.best] and advice.origins[compared.best] != "given":
        low, half, high = map(format_duration, run_range_s(best.shape))
        how = {"between": "interpolated", "a guess": "guessed"}.get(
            advice.origins[compared.best], f"calculated with the law {advice.origins[compared.best]!r}"
        )
        yield f"It has not run on {_name(advice, compared.best)} yet: {half} (8 in 10: {low} to {high}) is {how}."
    if advice.trial is not None:
        yield _known_by_a_trial(advice, advice.trial)


def _choice(advice: StageAdvice, compared: Compared) -> Iterator[str]:
    best, own = compared.best, compared.own
    name = _name(advice, best)
    changes = own is not None and own != best
    other = own if changes else compared.next_best
    begin = f"Keep {name}" if own == best else f"Ask for {name}"
    if other is None:
        yield f"{begin}: its run time on other {advice.what} is not known."
        return
    another, half = _name(advice, other), format_duration(compared.end_s(best)[1])
    if changes:
        yield f"{begin} in place of {another}: half of such jobs end within {half}, {_difference(advice, best, other)}."
    else:
        yield f"{begin}: half of such jobs end within {half}. Next is {another}: {_difference(advice, other, best)}."
    sooner, better = compared.sooner(best, other), compared.better(best, other)
    also = (
        ""
        if round(sooner, 2) == round(better, 2)
        else f"; with core-hours included, the probability that it is better is {100 * better:.0f} %"
    )
    yield f"The probability that it ends before {another} is {100 * sooner:.0f} %{also}."
    cheapest = compared.least
    if own == best and cheapest != best:
        rival, chance = _name(advice, cheapest), compared.better(cheapest, best)
        yield f"{_begun(rival)} may be better; the probability is {100 * chance:.0f} %, which is too low to change."


def _difference(advice: StageAdvice, one: int, other: int) -> str:
    """Compare two shapes: when each ends, and the core-hours of each."""
    compared = advice.compared
    assert compared is not None
    later_s = compared.end_s(one)[1] - compared.end_s(other)[1]
    more = advice.offers[one].core_hours - advice.offers[other].core_hours
    when = f"{format_duration(abs(later_s))} {'later' if later_s > 0 else 'sooner'}"
    hours = f"{format_core_hours(abs(more))} core-hours {'more' if more > 0 else 'less'}"
    are_same = abs(more) < min(_SAME_HOURS, _SAME * advice.offers[other].core_hours)
    when = "as soon" if abs(later_s) <= min(_SAME_S, _SAME * compared.end_s(other)[1]) else when
    return f"{when}, for {'as many core-hours' if are_same else hours}"


def _known_by_a_trial(advice: StageAdvice, trial: Trial) -> str:
    untried = trial.untried
    where = trial.partition if _has_partitions(advice) else ""
    name = shape_text(untried.width, where, advice.what)
    gain = f"{format_duration(trial.gain_s)} ({100 * trial.share:.0f} % of the time to its end)"
    if not trial.is_worth_it and trial.share < _NOTHING:
        return "No other width is worth a try."
    if not trial.is_worth_it:
        return f"No other width is worth a try: knowing the run time on {name} would save {gain} on average."
    scales = (
        f" ({100 * untried.scales(trial.needed_s):.0f} % of perfect scaling)"
        if untried.width > untried.near.width
        else ""
    )
    low, high = map(format_core_hours, trial.core_hours)
    takes = f"{low} core-hours" if low == high else f"{low} to {high} core-hours"
    return (
        f"Worth a try: {name}, which is better if it runs there for at most {format_duration(trial.needed_s)}"
        f"{scales}; probability {100 * trial.likely:.0f} %. Knowing its run time saves {gain} on average; the trial "
        f"takes {takes}."
    )


def _name(advice: StageAdvice, index: int) -> str:
    shape = advice.offers[index].shape
    return shape_text(shape.width, shape.partition if _has_partitions(advice) else "", advice.what)


def _has_partitions(advice: StageAdvice) -> bool:
    return len({offer.shape.partition for offer in advice.offers}) > 1


def shape_text(width: int, partition: str, what: str) -> str:
    """Name a shape, without the partition if that is empty."""
    count = f"{width} {what[:-1] if width == 1 else what}"
    return f"{count} in partition {partition}" if partition else count


def _begun(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


# ---------------------------------------------------------------------- for a person


def print_advice(advice: Sequence[StageAdvice], destination: Destination, title: str) -> None:
    """Print tables and sentences."""
    from asa.core.console import Console

    console = Console(highlight=False)
    console.print(title, style="bold", markup=False)
    for stage_advice in advice:
        console.print()
        _print_stage(console, stage_advice, is_alone=len(advice) == 1)
    console.print()
    for words in _ground(destination):
        console.print(words, style="dim", markup=False)


def _print_stage(console: Console, advice: StageAdvice, *, is_alone: bool) -> None:
    if not is_alone:
        console.print(advice.name, style="bold", markup=False)
    if advice.offers:
        console.print(_table(advice, is_wide=console.width >= _WIDE))
    for words in sentences(advice):
        console.print(words, markup=False)
    for words in advice.left_out:
        console.print(f"Left out: {words}.", markup=False, style="dim")


def _table(advice: StageAdvice, *, is_wide: bool) -> Any:
    from rich.table import Table
    from rich.text import Text

    compared = advice.compared
    has_partitions = _has_partitions(advice)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column(advice.what.capitalize(), justify="right")
    if has_partitions:
        table.add_column("Where", overflow="fold")
    for column in ("Known", "Run", "8 in 10"):
        table.add_column(column, justify="right", no_wrap=True)
    waits = () if compared is None else ("Wait", *(("8 in 10",) if is_wide else ()), "End", "8 in 10")
    for column in (*waits, "Core-h"):
        table.add_column(column, justify="right", no_wrap=True)
    for index, offer in enumerate(advice.offers):
        low, half, high = run_range_s(offer.shape)
        is_best = compared is not None and index == compared.best
        cells = [_range(low, high)] if high - low >= 1 else [""]
        if compared is not None:
            waits_s, ends_s = compared.wait_s(index), compared.end_s(index)
            cells += [format_duration(waits_s[1]), *([_range(waits_s[0], waits_s[2])] if is_wide else [])]
            cells += [format_duration(ends_s[1]), _range(ends_s[0], ends_s[2])]
        table.add_row(
            _mark(is_own=index == advice.own, is_best=is_best),
            str(offer.shape.width),
            *([Text(offer.shape.partition)] if has_partitions else []),
            advice.origins[index],
            format_duration(half),
            *cells,
            format_core_hours(core_hours(offer.cores, offer.shape.run_s)),
            style="bold green" if is_best else "",
        )
    return table


def _mark(*, is_own: bool, is_best: bool) -> str:
    return "keep" if is_own and is_best else "now" if is_own else "ask" if is_best else ""


def _range(low_s: float, high_s: float) -> str:
    """Write a range of times."""
    return f"{format_duration(low_s)}-{format_duration(high_s)}"


def _ground(destination: Destination) -> Iterator[str]:
    """Return the source of the predicted waits, in words."""
    known = destination.known
    if known is None:
        yield f"Waits are not known, so no width is advised. {_begun(destination.why)}"
        return
    if known.live:
        yield f"{_begun(known.live)}."
    else:
        yield f"Waits as of the last submission in the bank, from {known.bank.learned:,} of them."
    if destination.price_s is not None:
        yield f"Core-hours count as {destination.price_of} says: {format_price(destination.price_s)}."
    yield "Times are medians, from the submission on, each with the range of 8 in 10 cases."

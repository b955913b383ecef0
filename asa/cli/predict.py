"""``asa predict``: predicts how long jobs would wait, from the present queue and the bank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.answers import ComparedRequests, PredictionAnswer
from asa.cli.bank import BankOption
from asa.cli.doctor import BackendOption, SiteOption
from asa.cli.given import OptionsOption, given_settings
from asa.cli.terminal import write_notice
from asa.core.documents import print_json
from asa.core.options import Output, OutputOption
from asa.errors import AsaError, InputError
from asa.units import MAX_CORES

if TYPE_CHECKING:
    from pathlib import Path

    from asa.cli.answers import Said
    from asa.cli.known_waits import Asked, KnownWaits
    from asa.estimators.joint import JointForecast
    from asa.sites import OpenedSite
    from asa.waits import QueuedJob, WaitForecast

_WITHIN_S = (600.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
_MAX_REQUESTS = 100
_MAX_WORDS = 100
_MAX_ASKED = 12  # requests for which to ask the batch system's own estimate


def predict(
    cores: Annotated[
        str, typer.Option(help="Cores that the job asks for; several are compared, as in 7,14,28.", metavar="N[,N...]")
    ],
    walltime: Annotated[
        str,
        typer.Option(
            help="Walltime that it asks for, as 2h, 90min or 1-12:00:00; several are compared.",
            metavar="TIME[,TIME...]",
        ),
    ],
    run_time: Annotated[
        str | None,
        typer.Option(
            help="Its run time, one for all or one for each of the cores; then the first to end is found.",
            metavar="TIME[,TIME...]",
            show_default=False,
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(help="A system of the bank, of which to predict; no batch system is asked then."),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="The partition; several are compared. [default: the site's, or the only one in the bank]",
            metavar="NAME[,NAME...]",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Whose job it is. [default: yours if you have jobs in the bank, else anybody's]")
    ] = None,
    bank: BankOption = None,
    within: Annotated[
        str | None,
        typer.Option(help="Print the probability that the job starts within this time.", metavar="DURATION"),
    ] = None,
    bank_only: Annotated[
        bool, typer.Option("--bank-only", help="Do not ask a batch system: answer as of the last job in the bank.")
    ] = False,
    ask_site: Annotated[
        bool,
        typer.Option(
            "--ask-site/--no-ask-site",
            help="Also ask the batch system for its own estimate of the first 12 requests (`sbatch --test-only`), "
            "and weigh it by how far off it was lately. Nothing is submitted.",
        ),
    ] = True,
    backend: BackendOption = None,
    site: SiteOption = None,
    settings: OptionsOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Predict how long a job would wait in the queue if it were submitted now.

    The answer is a range with probabilities, and how good recent predictions were. If there is a batch system here, its
    present queue is taken into account, as far as you may see it; else the answer is as of the last job in the bank.
    Nothing is submitted.

    Example: `asa predict --cores 112 --walltime 2h`

    Several requests are compared: which is likely to start first or, with run times, to end first: `asa predict --cores
    7,28,112 --walltime 8h --run-time 7h,2h,40min`
    """
    widths = [_cores(part) for part in _parts(cores, "--cores")]
    walltimes = list(dict.fromkeys(_positive(part, "--walltime") for part in _parts(walltime, "--walltime")))
    run_s = _run_times(run_time, widths)
    times = (_seconds(within, "--within"),) if within is not None else _WITHIN_S
    partitions = list(dict.fromkeys(part.strip() for part in partition.split(","))) if partition is not None else []

    def asked(partitions: Sequence[str]) -> list[Asked]:
        every = product(dict.fromkeys(widths), walltimes, partitions) if ask_site else ()
        return [request for request in every if run_s.get(request[0], 0.0) <= request[1]][:_MAX_ASKED]

    given = given_settings(settings)
    known = find_known(
        bank, system, partitions, user, lambda: find_asked(backend, site, given, bank_only=bank_only), asked
    )
    jobs = _in_time(_requests(known, list(dict.fromkeys(widths)), walltimes), run_s)
    as_json = output is Output.JSON
    if len(jobs) == 1 and not run_s:
        answer = _answer(known, jobs[0], times)
        if as_json:
            print_json(answer.as_dict())
        else:
            answer.print()
        return
    joint = _joint(known, jobs)
    each_s = [run_s[job.cores] for job in jobs] if run_s else None
    compared = ComparedRequests(joint, each_s, times, _answer(known, jobs[joint.best(each_s)], times))
    if as_json:
        print_json(compared.as_dict())
    else:
        compared.print()


def find_asked(
    backend: str | None, site: str | None, settings: dict[str, str], *, bank_only: bool
) -> OpenedSite | None:
    """Find the batch system to ask; None with ``--bank-only``, or if none is here."""
    from asa.cli.known_waits import find_site

    if bank_only:
        for option, value in (("--backend", backend), ("--site", site), ("--option", settings)):
            if value:
                raise InputError("does not go with --bank-only", where=option, hint="Leave one out.")
        return None
    return find_site(backend, site, settings)


def find_known(
    bank: Path | None,
    system: str | None,
    partitions: Sequence[str],
    user: str | None,
    find: Callable[[], OpenedSite | None],
    asked: Callable[[Sequence[str]], Sequence[Asked]] = lambda _partitions: (),
) -> KnownWaits:
    """Learn from the present queue if there is a batch system here, else from the bank."""
    from asa.cli.known_waits import from_bank, from_queue

    opened = None if system is not None else find()
    if opened is None:
        return from_bank(bank, system, partitions, user)
    try:
        return from_queue(bank, opened, partitions, user, asked)
    except AsaError as error:
        if not opened.why:  # the user named the batch system
            raise
        why = shorten(error.message, _MAX_WORDS, placeholder=" ...")
        write_notice(
            f"asa: the queue cannot be looked at ({opened.backend}: {why}), so only the bank is used, as with "
            f"--bank-only"
        )
    return from_bank(bank, system, partitions, user)


def _requests(known: KnownWaits, widths: Sequence[int], walltimes: Sequence[float]) -> list[QueuedJob]:
    """Make all combinations of the requested values; leave out widths that a partition is not known to have had."""
    from asa.cli.known_waits import check_width

    jobs: list[QueuedJob] = []
    refused: list[InputError] = []
    for partition in known.partitions:
        for width in widths:
            try:
                check_width(known, width, partition)
            except InputError as error:
                refused.append(error)
            else:
                jobs += [known.request(width, walltime_s, partition) for walltime_s in walltimes]
    if not jobs or (refused and len(known.partitions) == 1):
        raise refused[-1]
    for refusal in refused:
        write_notice(f"Note: {refusal.where} is left out: {refusal.message}")
    if len(jobs) > _MAX_REQUESTS:
        raise InputError(
            f"makes {len(jobs)} combinations with the others", where="--cores", hint=f"Ask for at most {_MAX_REQUESTS}."
        )
    return jobs


def _in_time(jobs: Sequence[QueuedJob], run_s: dict[int, float]) -> list[QueuedJob]:
    """Leave out requests that would not end within their walltime."""
    from asa.units import format_duration

    fitting = [job for job in jobs if run_s.get(job.cores, 0.0) <= job.walltime_s]
    if not fitting:
        raise InputError("no run time fits into a walltime", where="--run-time", hint="Ask for more with --walltime.")
    for job in jobs:
        if job not in fitting:
            walltime, took = format_duration(job.walltime_s), format_duration(run_s[job.cores])
            write_notice(f"Note: {job.cores} cores for {walltime} are left out: the job runs for {took}")
    return fitting


def _answer(known: KnownWaits, job: QueuedJob, times: Sequence[float]) -> PredictionAnswer:
    """Answer one request."""
    from asa.cli.answers import ENOUGH
    from asa.estimators.kept import kind_of

    geometry = job.geometry
    forecast, said = _said(known, job, known.bank.predict(job))
    alike = [o for o in known.outcomes if o.job.geometry == geometry and o.job.user == (known.user or o.job.user)]
    return PredictionAnswer(
        job,
        forecast,
        times,
        known.bank.learned,
        known.digest.count,
        known.kinds.get(kind_of(job), 0),
        alike if len(alike) >= ENOUGH else known.outcomes,
        of_geometry=len(alike) >= ENOUGH,
        behind_s=known.behind_s,
        live=known.live,
        said=said,
    )


def _said(known: KnownWaits, job: QueuedJob, forecast: WaitForecast) -> tuple[WaitForecast, Said | None]:
    """Blend the batch system's own estimate for a request, if it has one, into the forecast."""
    from asa.cli.answers import Said
    from asa.estimators.site_estimate import assumed_error, blend, off_lately

    word_s = known.estimates_s.get((job.cores, job.walltime_s, job.partition))
    if word_s is None:
        return forecast, None
    lived = known.digest.site_estimates
    share = 0.0
    if not known.bank.sees_queue:
        lately = [(outcome.forecast.wait_s, outcome.wait_s) for outcome in known.outcomes]
        blended = blend(forecast, word_s, lived, assumed_error(known.bank.learned, lately))
        forecast, share = blended.forecast, blended.share
    return forecast, Said(known.whose, word_s, share, *off_lately(lived))


def _joint(known: KnownWaits, jobs: Sequence[QueuedJob]) -> JointForecast:
    """Judge requests together, each blended with the batch system's own estimate."""
    from asa.estimators.site_estimate import blended_together, decades_between

    joint = known.bank.predict_together(jobs)
    if not known.estimates_s or known.bank.sees_queue:
        return joint
    alone = [joint.forecast(index) for index in range(len(jobs))]
    return blended_together(
        joint,
        [decades_between(forecast, _said(known, job, forecast)[0]) for job, forecast in zip(jobs, alone, strict=True)],
    )


def _parts(text: str, option: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError("names nothing", where=option, hint="Give one, or several separated by commas.")
    return parts


def _cores(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_CORES):
        raise InputError(f"{text!r} is not a number of cores", where="--cores", hint=f"Give 1 to {MAX_CORES:,}.")
    return int(text)


def _run_times(text: str | None, widths: Sequence[int]) -> dict[int, float]:
    """Read the run time of the job at each width."""
    if text is None:
        return {}
    times_s = [_positive(part.strip(), "--run-time") for part in text.split(",") if part.strip()]
    if len(times_s) not in {1, len(widths)}:
        raise InputError(
            f"{len(times_s)} run times for {len(widths)} numbers of cores",
            where="--run-time",
            hint="Give one for all, or one for each, in the order of --cores.",
        )
    by_width = list(zip(widths, times_s * (len(widths) // len(times_s)), strict=True))
    if len(dict.fromkeys(by_width)) > len(dict(by_width)):
        raise InputError(
            "names two run times for the same cores", where="--run-time", hint="Give each number of cores once."
        )
    return dict(by_width)


def _positive(text: str, option: str) -> float:
    if not (value_s := _seconds(text, option)):
        raise InputError("is 0", where=option, hint="Give a positive duration, as in 2h.")
    return value_s


def _seconds(text: str, option: str) -> float:
    from asa.units import parse_duration

    try:
        return parse_duration(text)
    except InputError as error:
        raise InputError(error.message, where=option, hint=error.hint) from error

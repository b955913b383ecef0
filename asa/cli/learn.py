"""``asa learn``: fills the bank from the site's records of past jobs."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.bank import BankOption
from asa.cli.doctor import BackendOption, SiteOption
from asa.cli.given import OptionsOption, given_settings
from asa.cli.runs import print_document
from asa.cli.terminal import write_notice
from asa.core import temporary
from asa.core.files import open_file
from asa.core.options import Output, OutputOption
from asa.errors import InputError, TraceError
from asa.units import MAX_JOBS

if TYPE_CHECKING:
    from asa.estimators.stored import WaitRecord
    from asa.history import JobHistory

_MANY = 20_000  # waits, which the first prediction would take seconds to learn
_WHERE_FROM = "Give --from FILE, or --since 30d where the site's commands are, or --site, or --backend and --option."


def learn(
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Output of `sacct -P`, or a log in the Standard Workload Format; - for stdin.",
            metavar="FILE",
        ),
    ] = None,
    backend: BackendOption = None,
    site: SiteOption = None,
    settings: OptionsOption = None,
    since: Annotated[
        str | None,
        typer.Option(help="From a site: jobs of the last so many days, as 30d. [default: 30d]", metavar="DURATION"),
    ] = None,
    bank: BankOption = None,
    system: Annotated[
        str | None,
        typer.Option(help="Name of the system. [default: the cluster's name in the file, or the file's name]"),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Learn only the latest N jobs.", min=1, max=MAX_JOBS)] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Learn queue waits from past jobs, your own or those of all users, and keep them in the bank.

    From a site: `asa learn --since 30d` where Slurm's commands are installed, else with --site, or --backend and
    --option.

    From a file: `SLURM_TIME_FORMAT=%s sacct -a -D -X -P -S now-90days -o
    Cluster,JobID,User,Partition,Submit,Eligible,Start,End,State,TimelimitRaw,ReqCPUS,Reservation,Reason > jobs.txt` and
    then `asa learn --from jobs.txt`. Without `-a` these are only your own jobs, as many sites allow no more.

    Jobs that were learned before are not added again. Then ask `asa predict`.
    """
    import numpy as np

    from asa.estimators.kept import learn_file
    from asa.estimators.readiness import later
    from asa.estimators.store import WaitStore, default_folder
    from asa.units import format_duration

    if source is not None and (backend, site, settings, since) != (None,) * 4:
        raise InputError("a file and a site are given", where="--from", hint="Give one of them.")
    digest = ""
    if source is not None:
        (history, digest), origin = _from_file(source), source.name
    elif (backend, site, settings, since) == (None,) * 4:
        raise InputError("no source is given", where="asa learn", hint=_WHERE_FROM)
    else:
        history = _from_site(backend, site, settings, since or "30d")
        origin = history.source
    name = system or history.system
    if not name:
        raise InputError("does not say which system its jobs are of", where=origin, hint="Name it with --system.")
    folder = bank or default_folder()
    with WaitStore(folder) as store:
        records = _records(history, name, origin, limit)
        added = learn_file(store, f"{digest} {name} {limit}", records) if digest else store.extend(records)
        widest = store.widest(name)
    learned = history if limit is None else history.last(limit)
    median_s = float(np.sort(learned.wait_s)[len(learned) // 2]) if len(learned) else None
    names = [*learned.partitions, ""]
    partitions = Counter(names[index] for index in learned.partition)
    if output is Output.JSON:
        _print_json(name, len(learned), added, median_s, partitions, folder, history)
        return
    for words, count in history.oddities.items():
        write_notice(f"Note: {count:,} x {words}")
    typical = f", half of them up to {format_duration(median_s)}" if median_s is not None else ""
    write_notice(f"{len(learned):,} waits on {name!r}{typical}; {added:,} of them are new in {folder}")
    busiest = next((name for name, _ in partitions.most_common() if name), min(widest, default=""))
    where = f" --partition {shlex.quote(busiest)}" if len(widest) > 1 else ""
    where += f" --bank {shlex.quote(str(bank))}" if bank is not None else ""
    cores = min(widest.get(busiest, 0) or 16, 16)
    if added >= _MANY and later("-m", "asa", *_first_prediction(folder, name)):
        write_notice("Note: an estimator is learning them in the background, for the first prediction.")
    sys.stderr.write(f"Ask with: asa predict --cores {cores} --walltime 2h --system {shlex.quote(name)}{where}\n")


def _first_prediction(bank: Path, system: str) -> list[str]:
    """Return a command whose prediction leaves what was learned for later ones."""
    request = ["--cores", "1", "--walltime", "1h", "--system", system]
    return ["predict", "--bank-only", *request, "--bank", str(bank.absolute())]


def _print_json(
    system: str,
    learned: int,
    added: int,
    median_s: float | None,
    partitions: Mapping[str, int],
    folder: Path,
    history: JobHistory,
) -> None:
    fields = {"system": system, "waits": learned, "new": added, "median_wait_s": median_s}
    of = {"partitions": dict(partitions), "bank": str(folder), "notes": dict(history.oddities)}
    print_document({**fields, **of})


def _from_file(source: Path) -> tuple[JobHistory, str]:
    """Return the jobs of a file, and the digest of its content; that is empty for what can be read only once."""
    from hashlib import file_digest

    from asa.history import read_history

    with _file(source) as file:
        history = read_history(file)
        if not file.is_file():
            return history, ""
        with open_file(file) as content:
            return history, file_digest(content, "blake2b").hexdigest()


def _from_site(backend: str | None, site: str | None, settings: Sequence[str] | None, since: str) -> JobHistory:
    import time

    from asa.backend import Examinable
    from asa.sites import open_facility

    since_s = time.time() - _age_s(since)
    opened = open_facility(backend, site, given_settings(settings))
    if not isinstance(opened.facility, Examinable):
        raise InputError(
            "does not tell about past jobs", where=f"backend {opened.backend!r}", hint="Learn from a file: --from FILE."
        )
    if opened.why:
        write_notice(f"Using {opened.file.stem if opened.file else opened.backend}: {opened.why}.")
    return opened.facility.history(since_s)


def _age_s(since: str) -> float:
    from asa.units import parse_duration

    hint = "Write it as 30d, 12h or 1d12h."
    if since.strip().isdecimal():
        raise InputError(f"{since!r} has no unit", where="--since", hint=hint)
    try:
        return parse_duration(since)
    except InputError as error:
        raise InputError(error.message, where="--since", hint=hint) from error


@contextmanager
def _file(source: Path) -> Iterator[Path]:
    """Return a file's path; input from a pipe is stored in a file first."""
    if str(source) != "-":
        yield source
        return
    with temporary.file("stdin-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        try:
            yield Path(copy.name)
        except TraceError as error:
            where = (error.where or "").replace(copy.name, "standard input")
            raise TraceError(error.message, where=where, hint=error.hint) from error


def _records(history: JobHistory, system: str, source: str, limit: int | None) -> Iterator[WaitRecord]:
    """Make records whose ids are hashes of their content, so that learning a job again adds nothing."""
    from dataclasses import replace
    from hashlib import blake2s

    from asa.estimators.bank import history_records

    def name(content: bytes, number: int) -> str:
        return f"job-{blake2s(b'%s%d' % (content, number), digest_size=12).hexdigest()}"

    known: set[str] = set()
    again: Counter[str] = Counter()
    for record in history_records(history, most=limit, system=system):
        content = repr((record.job, record.observation)).encode(errors="surrogatepass")
        first = name(content, 1)
        if first not in known:
            known.add(first)
            yield replace(record, source=source, id=first)
            continue
        again[first] += 1
        yield replace(record, source=source, id=name(content, 1 + again[first]))

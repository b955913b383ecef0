"""``asa learn``: seed the bank from what the site has kept of past jobs."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.bank import BankOption
from asa.errors import InputError

if TYPE_CHECKING:
    from asa.estimators.store import WaitRecord
    from asa.history import JobHistory

__all__ = ["learn"]


def learn(
    source: Annotated[
        Path,
        typer.Option(
            "--from",
            help="Output of `sacct -P`, or a log in the Standard Workload Format; - for stdin.",
            metavar="FILE",
        ),
    ],
    bank: BankOption = None,
    system: Annotated[
        str | None, typer.Option(help="Name of the system. [default: what the file says; a log's name]")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Learn only so many jobs, the latest.", min=1)] = None,
) -> None:
    """Learn queue waits from past jobs, of one user or of everybody, and keep them in the bank.

    From accounting: `SLURM_TIME_FORMAT=%s sacct -a -D -X -P -S now-90days
    -o Cluster,JobID,User,Partition,Submit,Eligible,Start,End,State,TimelimitRaw,ReqCPUS,Reservation,Reason > jobs.txt`
    and then `asa learn --from jobs.txt`. Without `-a` it is one's own jobs, which is what many sites allow.

    Learning a file again, or one that overlaps, adds only what is new. Ask with `asa predict`.
    """
    from asa.estimators.store import WaitStore, default_folder
    from asa.history import read_history
    from asa.units import format_duration

    with _file(source) as file:
        history = read_history(file)
    name = system or history.system
    if not name:
        raise InputError("does not say which system its jobs are of", where=str(source), hint="Name it with --system.")
    records = _records(history, name, str(source.name), limit)
    folder = bank or default_folder()
    with WaitStore(folder) as store:
        added = store.extend(records)
    for words, count in history.oddities.items():
        sys.stderr.write(f"Note: {count:,} x {words}\n")
    waits = sorted(record.observation.wait_s for record in records)
    typical = f", half of them up to {format_duration(waits[len(waits) // 2])}" if waits else ""
    sys.stderr.write(f"{len(records):,} waits on {name!r}{typical}; {added:,} of them are new in {folder}\n")
    partitions = Counter(record.job.partition for record in records)
    where = f" --partition {shlex.quote(partitions.most_common(1)[0][0])}" if len(partitions) > 1 else ""
    where += f" --bank {shlex.quote(str(bank))}" if bank is not None else ""
    sys.stderr.write(f"Ask with: asa predict --cores 16 --walltime 2h --system {shlex.quote(name)}{where}\n")


@contextmanager
def _file(source: Path) -> Iterator[Path]:
    """Give a file's path, also for what comes through a pipe."""
    if str(source) != "-":
        yield source
        return
    with tempfile.NamedTemporaryFile(prefix="stdin-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name)


def _records(history: JobHistory, system: str, source: str, limit: int | None) -> list[WaitRecord]:
    """Make records whose ids are their content's, so that learning the same job again adds nothing."""
    from dataclasses import replace
    from hashlib import blake2s

    from asa.estimators.bank import history_records

    seen: Counter[str] = Counter()
    records = []
    for record in history_records(history, most=limit, system=system):
        told = replace(record, source=source)
        content = repr((told.job, told.observation))
        seen[content] += 1
        digest = blake2s(f"{content}{seen[content]}".encode(errors="surrogatepass"), digest_size=12).hexdigest()
        records.append(replace(told, id=f"job-{digest}"))
    return records

"""Reads Snakemake's graph: its jobs, their predecessors, and their resources."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asa.backend import Capabilities
from asa.core.files import read_text
from asa.errors import AsaError
from asa.hosted.asking import HostRequest
from asa.hosted.graph import HostJob
from asa.hosted.session import AsksFor
from asa.hosted.settings import run_name

from .requests import RequestReader
from .resources import JobResources

USUAL_RUNS = Path(".snakemake/asa")
"""Default folder of the runs."""


def key_of(job: Any) -> Hashable:
    """Return a job's identity, which stays the same if Snakemake makes a new object for it."""
    if job.is_group():
        return frozenset(map(key_of, job.jobs))
    return (
        job.rule.name,
        tuple(sorted((name, str(value)) for name, value in job.wildcards_dict.items())),
        tuple(map(str, job.output)),
    )


def kind_of_job(job: Any) -> str:
    """Return the name that similar jobs share: the rule, or the rules of a group."""
    if job.is_group():
        return "-".join(sorted({job.rule.name for job in job.jobs}))
    return str(job.rule.name)


def label_of(job: Any) -> str:
    """Return a job's rule and wildcards, as in ``bwa_map sample=B``; of a group, its rules and what they share."""
    values = ",".join(f"{name}={value}" for name, value in _wildcards(job).items())
    return f"{kind_of_job(job)} {values}".strip()


def detail_of(job: Any) -> str:
    """Return what tells a job from others of its rule: the values of its wildcards."""
    return "-".join(_wildcards(job).values())


def _wildcards(job: Any) -> dict[str, str]:
    """Return a job's wildcards; of a group, those that have one value in all of its jobs that have them."""
    found: dict[str, set[str]] = {}
    for one in sorted(job.jobs, key=lambda one: str(one.rule.name)) if job.is_group() else [job]:
        for name, value in one.wildcards_dict.items():
            found.setdefault(str(name), set()).add(str(value))
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def parts_of(job: Any) -> dict[str, str]:
    """Return what a job's rules run, by the rules' names: their commands, with wildcards still open, and scripts."""
    rules = [one.rule for one in job.jobs] if job.is_group() else [job.rule]
    return {str(rule.name): "\n".join(_texts_of(rule)) for rule in rules}


def _texts_of(rule: Any) -> Iterator[str]:
    if rule.shellcmd:
        yield str(rule.shellcmd)
    elif rule.script:
        with suppress(OSError, ValueError, AsaError):  # it may be on a server, or have wildcards in its name
            yield read_text(Path(str(rule.snakefile)).parent / str(rule.script))
    elif text := getattr(rule, "run_func_src", None):
        yield text.decode(errors="replace") if isinstance(text, bytes) else str(text)


class Reader:
    """Reads the remaining jobs. The key of each job is computed once."""

    def __init__(self, dag: Any) -> None:
        self._dag = dag
        self._groups: Mapping[Any, Any] = getattr(dag, "_group", {})
        # by id of the job; the job is kept, so its id is not used again
        self._keys: dict[int, tuple[Any, Hashable]] = {}

    def nodes(self) -> Iterator[HostJob]:
        """Yield the jobs that have not run yet, except those that Snakemake runs itself."""
        self._groups = getattr(self._dag, "_group", {})
        left = sorted(self._dag.needrun_jobs(), key=self._dag.jobid)
        wanted = set(left)
        seen: set[Hashable] = set()
        for job in left:
            unit = self._unit(job)
            if unit.is_local or (key := self.key(unit)) in seen:
                continue
            seen.add(key)
            before = tuple(self._before(unit, wanted))
            yield HostJob(key, kind_of_job(unit), unit, before, detail_of(unit), label_of(unit), parts_of(unit))

    def key(self, unit: Any) -> Hashable:
        """Return the key of a job or of a group."""
        if (known := self._keys.get(id(unit))) is None or known[0] is not unit:
            known = self._keys[id(unit)] = (unit, key_of(unit))
        return known[1]

    def _unit(self, job: Any) -> Any:
        return job if job.group is None else self._groups.get(job, job)

    def _before(self, unit: Any, wanted: set[Any]) -> Iterator[Hashable]:
        """Yield the keys of the jobs that a job follows, also through jobs that Snakemake runs itself."""
        members = list(unit.jobs) if unit.is_group() else [unit]
        inside, seen = set(members), set[Any](members)
        to_see = [dependency for job in members for dependency in self._dag.dependencies[job]]
        given: set[Hashable] = set()
        while to_see:
            job = to_see.pop()
            if job in seen or job not in wanted:
                continue
            seen.add(job)
            other = self._unit(job)
            if other.is_local:
                to_see.extend(self._dag.dependencies[job])
            elif job not in inside and (key := self.key(other)) not in given:
                given.add(key)
                yield key


def benchmarks(dag: Any) -> Iterator[tuple[str, int, float, float]]:
    """Yield rule, threads, seconds and moment of Snakemake's benchmarks of the jobs of its graph."""
    for job in dag.jobs:
        if (file := job.benchmark) is None:
            continue
        path = Path(str(file))
        try:
            head, *lines = read_text(path).splitlines()
            column = head.split("\t").index("s")
            times = [float(line.split("\t")[column]) for line in lines]
            yield from ((job.rule.name, int(job.threads), time, path.stat().st_mtime) for time in times)
        except (OSError, ValueError, IndexError):
            continue


@dataclass(frozen=True, slots=True)
class JobsAsk(AsksFor):
    """What the jobs of a workflow ask for."""

    dag: Any
    requests: RequestReader

    def request(self, node: HostJob, site: Capabilities) -> HostRequest:
        """Return what a job asks for by its resources."""
        return self.requests.of(JobResources.of_job(node.job, node.kind), site)

    def measured(self) -> Iterator[tuple[str, int, float, float]]:
        """Yield Snakemake's benchmarks."""
        yield from benchmarks(self.dag)

    def news(self) -> str:
        """Return what the user should know of what is asked for, and does not know yet."""
        return self.requests.news()


def name_of_run(snakefile: Path) -> str:
    """Name a run after the project that contains the workflow's file.

    Examples
    --------
    >>> name_of_run(Path("/home/ann/rna-seq/workflow/Snakefile"))
    'rna-seq'
    """
    folder = snakefile.absolute().parent
    return run_name((folder.parent if folder.name == "workflow" else folder).name, "snakemake")

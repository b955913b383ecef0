"""The executor. It gives asa the graph of jobs, then each job's command once Snakemake says that the job is ready."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from asa.backend import Capabilities
from asa.errors import AsaError
from asa.hosted.expected import Expectations
from asa.hosted.gained import gained
from asa.hosted.graph import Graph, HostJob
from asa.hosted.run import Ending, HostedRun, Settings, begin, command_of, last_words, never_start, wind_up
from asa.hosted.settings import bank_folder, open_batch_system, run_name, runs_folder
from asa.printable import printable
from asa.strategies.planned import at_price
from asa.units import parse_duration
from asa.workflow import Stage

from .options import given_options
from .reading import Reader, benchmarks, kind_of_job, label_of, max_jobs, own_output, stage_of
from .requests import RequestReader

_HOST = "Snakemake"
_LOOK_S = 0.1
_LAST_LINES = 15
_REMEDY = (
    "Ask for less, or for another partition: --cores, --max-threads and --set-threads RULE=N lower threads, "
    "--set-resources RULE:NAME=VALUE changes a resource."
)
_Left = tuple[str, HostJob, tuple[str, ...]]  # a stage's name, its job, and the stages that it follows


class Executor(RemoteExecutor):
    """Runs Snakemake's jobs in allocations that asa requests ahead of time."""

    # The parent's thread may read these before `__post_init__` has returned.
    _hosted: HostedRun | None = None
    _news: threading.Event | None = None

    def __post_init__(self) -> None:
        """End the jobs that an earlier Snakemake has left. A run begins only once a job is ready."""
        settings = cast("Any", self.executor_settings)
        self._news = threading.Event()
        self._graph, self._reader = Graph(), Reader(self.dag)
        self._endings: dict[str, Ending] = {}
        self._told: dict[str, str] = {}  # by stage handed over: the job that the user was told runs it
        self._n_checkpoints = -1
        self._cores_of_job = 0
        self._runs = runs_folder(Path(settings.runs))
        self._name = run_name(Path(str(self.workflow.main_snakefile)))
        with _as_workflow_error():
            self._default_s = parse_duration(str(settings.walltime))
            self._opened = open_batch_system(settings.backend, settings.site, settings.option or [])
            self._requests = RequestReader(given_options(), is_local=self._opened.backend == "local")
            self._settings = Settings(
                strategy=at_price(settings.strategy or self._opened.strategy or "asa-plan", self._opened.price),
                estimator=settings.estimator,
                bank=bank_folder(settings.bank),
                history=settings.history,
                max_jobs=max_jobs(self.workflow),
            )
            wind_up(self._runs, _HOST, lambda words: self.logger.info(printable(words)))

    # ------------------------------------------------------------------ from Snakemake

    def run_jobs(self, jobs: list[JobExecutorInterface]) -> None:
        """Pass the new part of the graph to asa, then hand over the jobs that are ready."""
        with _as_workflow_error():
            self._read_graph(jobs)
        assert self._hosted is not None
        with self._hosted.at_once():
            super().run_jobs(jobs)

    def run_job(self, job: JobExecutorInterface) -> None:
        """Hand over one job's command."""
        assert self._hosted is not None
        name = self._graph.stage_of(self._reader.key(job))
        node = HostJob((), kind_of_job(job), job, ())
        with _as_workflow_error():
            asked = self._stage(name, node, self._graph.after(name), self._hosted.folder.path)
            if news := self._requests.news():
                self.logger.info(printable(f"asa: {news}"))
            is_other = self._graph.note(asked)
            self._graph.handed_over(name)
            # Snakemake's own rule for a failed job
            may_come_again = bool(cast("Any", job).restart_times > job.attempt - 1)
            text = f"#!/bin/sh\n# {_HOST}'s job {job.jobid}, stage {name} of asa's run.\n{self._command(job)}\n"
            self._hosted.claim(name, text, asked=asked if is_other else None, may_come_again=may_come_again)
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=name, aux={"stage": name}))

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report jobs that have ended to Snakemake; yield the others."""
        trouble = self._hear()
        for info in active_jobs:
            name = (info.aux or {})["stage"]
            if trouble and name not in self._endings:
                raise WorkflowError(trouble)
            ending = self._endings.pop(name, None)
            self._tell_job(info, name, ending)
            if ending is None:
                yield info
            elif ending.completed:
                self._graph.ended(name)
                self.report_job_success(info)
            else:
                self._report_failure(info, ending)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel all jobs, also those that were submitted ahead of time."""
        if self._hosted is not None:
            self.logger.info(f"Cancelling {len(active_jobs)} jobs, and what was asked for ahead of others.")
            self._hosted.cancel(f"{_HOST} was signalled to end")

    def shutdown(self) -> None:
        """Cancel jobs that are no longer needed, and wait until they have ended, or the user interrupts."""
        hosted, is_over = self._hosted, False
        with suppress(KeyboardInterrupt):  # a second interrupt: the next Snakemake waits for them instead
            super().shutdown()
            self._hosted = None
            is_over = hosted is None or hosted.end()
        if hosted is not None and not is_over:
            self.logger.warning(
                f"Some of asa's jobs have not ended yet. The next {_HOST} in this folder sees to them; "
                f"or now: asa cancel {hosted.folder.path}"
            )
        elif hosted is not None and (words := gained(hosted.folder)):
            self.logger.info(printable(f"asa: {words}"))

    async def sleep(self) -> None:
        """Sleep until a stage has ended, but no longer than Snakemake says."""
        end_s = time.monotonic() + max(float(self.next_seconds_between_status_checks), _LOOK_S)
        while time.monotonic() < end_s and self.wait and not self._has_news():  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(_LOOK_S)
        if self._news is not None:
            self._news.clear()

    @property
    def cores(self) -> Any:
        """Cores that the Snakemake inside a job may use; for a group, those of its allocation."""
        return self._cores_of_job or super().cores

    def _has_news(self) -> bool:
        return self._news is not None and self._news.is_set()

    def _hear(self) -> str:
        """Fetch the stages that have ended; return why the run cannot continue, or an empty text."""
        if self._hosted is None:
            return ""
        try:
            self._endings |= {ending.stage: ending for ending in self._hosted.endings()}
        except Exception as error:  # noqa: BLE001 - any error that ended asa's thread
            return f"asa cannot go on: {error}\nWhat was submitted goes on; run {_HOST} again to end it and begin anew."
        return ""

    def _report_failure(self, info: SubmittedJobInfo, ending: Ending) -> None:
        if not ending.may_come_again:
            self._graph.ended(ending.stage)
        where = f"job {ending.job_id}" if ending.job_id else "its job"
        message = f"asa: {label_of(info.job)}: {where}: {ending.reason or 'failed'}.\n"
        log = last_words(ending.log)
        own = own_output(log)
        if own == "":
            message += f"Its command printed no errors. All of its output: {_logs(ending.stage, self._hosted)}\n"
        elif words := log if own is None else own:
            message += f"The last of {ending.log}:\n" + "\n".join(words.splitlines()[-_LAST_LINES:]) + "\n"
        self.report_job_error(info, msg=printable(message))

    def _tell_job(self, info: SubmittedJobInfo, stage: str, ending: Ending | None) -> None:
        """Say once which job runs a stage; again if it is another one."""
        job_id = ending.job_id if ending is not None else self._hosted.job_of(stage) if self._hosted else ""
        if job_id and self._told.get(stage) != job_id:
            self._told[stage] = job_id
            words = f"asa: {label_of(info.job)}: job {job_id}; its output: {_logs(stage, self._hosted)}"
            self.logger.info(printable(words))

    def _command(self, job: JobExecutorInterface) -> str:
        threads = max(int(job.threads), 1)
        if job.is_group():
            self._cores_of_job = threads
        elif self._requests.is_local:  # as many as it has here, which Snakemake cannot see
            self._cores_of_job = min(threads, self._expected.site.max_cores)
        try:
            return str(self.format_job_exec(job))
        finally:
            self._cores_of_job = 0

    # ------------------------------------------------------------------ the graph

    def _read_graph(self, jobs: Sequence[JobExecutorInterface]) -> None:
        """Add jobs that are new to the run, and drop those that are no longer wanted."""
        n_checkpoints = len(getattr(self.dag, "checkpoint_jobs", ()))
        is_as_it_was = self._hosted is not None and n_checkpoints == self._n_checkpoints
        if is_as_it_was and self._graph.knows(map(self._reader.key, jobs)):
            return
        self._n_checkpoints = n_checkpoints
        news, dropped = self._graph.read(self._reader.nodes())
        if self._hosted is None:
            self._begin(news)
            return
        self._hosted.drop(dropped, f"{_HOST} wants it no more")
        if impossible := self._hosted.extend(self._stages(news, self._hosted.folder.path)):
            words = never_start(impossible, self._hosted.folder.plan.place)
            self.logger.warning(printable(f"asa: {words}\nEach fails in its turn. {_REMEDY}"))

    def _begin(self, news: Sequence[_Left]) -> None:
        """Begin asa's run with the graph as it is now."""

        def make(site: Capabilities, folder: Path) -> list[Stage]:
            self._expected = Expectations(self._settings.bank, self._name, site, self._default_s)
            self._expected.measured(benchmarks(self.dag))
            return self._stages(news, folder)

        folder = begin(self._runs, self._name, _HOST, self._opened, settings=self._settings, make=make, remedy=_REMEDY)
        if words := folder.not_shared():
            self.logger.warning(printable(f"asa: {words}"))
        assert self._news is not None
        hosted = HostedRun(folder, self._opened, self._news.set)
        hosted.start()
        self._hosted = hosted
        plan, site = folder.plan, folder.plan.capabilities.system
        why = f" ({self._opened.why})" if self._opened.why else ""
        who = f"; waits are predicted by {plan.estimator}: {plan.estimator_why}" if plan.estimator_why else ""
        self.logger.info(
            printable(
                f"asa: {len(news)} job{'' if len(news) == 1 else 's'} on {site}, by {plan.backend}{why}."
                f" Strategy {plan.strategy}{who}.\n"
                f"{self._expected.text()}{self._requests.news()}See the run with: asa status {folder.path}"
            )
        )

    def _stages(self, news: Sequence[_Left], folder: Path) -> list[Stage]:
        stages = [self._stage(*new, folder) for new in news]
        for stage in stages:
            self._graph.note(stage)
        return stages

    def _stage(self, name: str, node: HostJob, after: tuple[str, ...], folder: Path) -> Stage:
        command = command_of(folder, name)
        return stage_of(node, name, command, after=after, expected=self._expected, requests=self._requests)


def _logs(stage: str, hosted: HostedRun | None) -> str:
    """Return the command that shows what a stage printed."""
    return f"asa logs {stage}" + (f" --run {hosted.folder.path}" if hosted is not None else "")


@contextmanager
def _as_workflow_error() -> Iterator[None]:
    """Turn errors of asa into errors that Snakemake shows as its own."""
    try:
        yield
    except AsaError as error:
        raise WorkflowError(f"asa: {error}") from error

"""The executor. It gives asa the graph of jobs, then each job's command once Snakemake says that the job is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from asa.hosted.asking import upper_bound
from asa.hosted.ending import Ending
from asa.hosted.graph import HostJob
from asa.hosted.session import HostSession, HostTerms, errors_as
from asa.hosted.settings import runs_folder
from asa.sites import OpenedSite

from .options import given_options
from .reading import USUAL_RUNS, JobsAsk, Reader, kind_of_job, label_of, name_of_run
from .requests import RequestReader

_HOST = "Snakemake"
_LOOK_S = 0.1
_TERMS = HostTerms(
    name=_HOST,
    option="--asa-{}".format,
    time_limit="runtime",
    remedy="Ask for less, or for another partition: --cores, --max-threads and --set-threads RULE=N lower threads, "
    "--set-resources RULE:NAME=VALUE changes a resource.",
)


class Executor(RemoteExecutor):
    """Runs Snakemake's jobs in allocations that asa requests ahead of time."""

    # The parent's thread may read it before `__post_init__` has returned.
    _session: HostSession | None = None

    def __post_init__(self) -> None:
        """End the jobs that an earlier Snakemake has left. A run begins only once a job is ready."""
        settings = cast("Any", self.executor_settings)
        self._reader = Reader(self.dag)
        self._endings: dict[str, Ending] = {}
        self._n_checkpoints = -1
        self._cores_of_job = 0
        with errors_as(WorkflowError):
            self._session = HostSession(
                terms=_TERMS,
                given=settings,
                asks=self._asks,
                runs=runs_folder(Path(settings.runs), USUAL_RUNS),
                workflow=name_of_run(Path(str(self.workflow.main_snakefile))),
                max_jobs=upper_bound(self.workflow.resource_settings.nodes),
                say=self.logger.info,
                warn=self.logger.warning,
            )

    def _asks(self, opened: OpenedSite) -> JobsAsk:
        self._requests = RequestReader(given_options(), is_local=opened.backend == "local")
        return JobsAsk(self.dag, self._requests)

    # ------------------------------------------------------------------ from Snakemake

    def run_jobs(self, jobs: list[JobExecutorInterface]) -> None:
        """Pass the new part of the graph to asa, then hand over the jobs that are ready."""
        assert self._session is not None
        with errors_as(WorkflowError):
            self._read_graph(jobs)
        with self._session.at_once():
            super().run_jobs(jobs)

    def run_job(self, job: JobExecutorInterface) -> None:
        """Hand over one job's command."""
        assert self._session is not None
        node = HostJob(self._reader.key(job), kind_of_job(job), job, (), label=label_of(job))
        with errors_as(WorkflowError):
            # Snakemake's own rule for a failed job
            may_come_again = bool(cast("Any", job).restart_times > job.attempt - 1)
            command = f"# {_HOST}'s job {job.jobid}.\n{self._command(job)}"
            name = self._session.hand_over(node, command, may_come_again=may_come_again)
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=name, aux={"stage": name}))

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report jobs that have ended to Snakemake; yield the others."""
        trouble = self._hear()
        for info in active_jobs:
            assert self._session is not None
            name = (info.aux or {})["stage"]
            if trouble and name not in self._endings:
                raise WorkflowError(trouble)
            ending = self._endings.pop(name, None)
            if ending is None:
                yield info
                continue
            message = "" if ending.completed else self._session.failure(ending)
            self._session.ended(ending)
            if ending.completed:
                self.report_job_success(info)
            else:
                if info.job.is_group():  # of which Snakemake does not print the message
                    self.logger.error(message)
                self.report_job_error(info, msg=message)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel all jobs, also those that were submitted ahead of time."""
        if self._session is not None and self._session.cancel():
            self.logger.info(f"Cancelling {len(active_jobs)} jobs, and what was asked for ahead of others.")

    def shutdown(self) -> None:
        """Cancel jobs that are no longer needed, and wait until they have ended, or the user interrupts."""
        is_in_time = False
        with suppress(KeyboardInterrupt):  # a second interrupt: the next Snakemake waits for them instead
            super().shutdown()
            is_in_time = True
        if self._session is not None:
            self._session.end(waits=is_in_time)

    async def sleep(self) -> None:
        """Sleep until a stage has ended, but no longer than Snakemake says."""
        end_s = time.monotonic() + max(float(self.next_seconds_between_status_checks), _LOOK_S)
        while time.monotonic() < end_s and self.wait and not self._has_news():  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(_LOOK_S)
        if self._session is not None:
            self._session.news.clear()

    @property
    def cores(self) -> Any:
        """Cores that the Snakemake inside a job may use; for a group, those of its allocation."""
        return self._cores_of_job or super().cores

    def _has_news(self) -> bool:
        return self._session is not None and self._session.news.is_set()

    def _hear(self) -> str:
        """Fetch the stages that have ended; return why the run cannot continue, or an empty text."""
        if self._session is None:
            return ""
        try:
            self._endings |= {ending.stage: ending for ending in self._session.hear()}
        except Exception as error:  # noqa: BLE001 - any error that ended asa's thread
            return f"asa cannot go on: {error}\nWhat was submitted goes on; run {_HOST} again to end it and begin anew."
        return ""

    def _command(self, job: JobExecutorInterface) -> str:
        assert self._session is not None
        threads = max(int(job.threads), 1)
        if job.is_group():
            self._cores_of_job = threads
        elif self._requests.is_local:  # as many as it has here, which Snakemake cannot see
            self._cores_of_job = min(threads, self._session.site.max_cores)
        try:
            return str(self.format_job_exec(job))
        finally:
            self._cores_of_job = 0

    def _read_graph(self, jobs: Sequence[JobExecutorInterface]) -> None:
        """Add jobs that are new to the run, and drop those that are no longer wanted."""
        assert self._session is not None
        n_checkpoints = len(getattr(self.dag, "checkpoint_jobs", ()))
        if n_checkpoints == self._n_checkpoints and self._session.knows(map(self._reader.key, jobs)):
            return
        self._n_checkpoints = n_checkpoints
        self._session.read(self._reader.nodes())

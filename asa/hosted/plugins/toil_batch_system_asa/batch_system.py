"""The batch system: it gives asa the graph of jobs, then each job's command once Toil issues it."""

from __future__ import annotations

import glob
import logging
import shlex
import shutil
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from toil.batchSystems.abstractBatchSystem import (
    EXIT_STATUS_UNAVAILABLE_VALUE,
    BatchJobExitReason,
    InsufficientSystemResources,
    UpdatedBatchJobInfo,
)
from toil.batchSystems.cleanup_support import BatchSystemCleanupSupport
from toil.batchSystems.slurm import SlurmBatchSystem
from toil.bus import ExternalBatchIdMessage
from toil.common import InconsistentConfigurationError

from asa.hosted.asking import upper_bound
from asa.hosted.ending import Ending, EndKind
from asa.hosted.options import OPTIONS
from asa.hosted.session import HostSession, HostTerms, errors_as

from .ahead import Ahead
from .reading import ToilRequests, name_of_run, runs_of

_log = logging.getLogger("toil.batchSystems.asa")  # where Toil's level of messages holds
_LOOK_S: Final = 0.1
_TERMS: Final = HostTerms(
    name="Toil",
    option=lambda name: f"--asa{name.title()}",
    time_limit="walltime",
    remedy="Ask for less in the workflow, or for another partition: --slurmPartition, --asaOption partition=NAME.",
)
_REASONS: Final = {
    EndKind.COMPLETED: BatchJobExitReason.FINISHED,
    EndKind.FAILED: BatchJobExitReason.FAILED,
    EndKind.OUT_OF_MEMORY: BatchJobExitReason.MEMLIMIT,
    EndKind.OUT_OF_TIME: BatchJobExitReason.TIMELIMIT,
    EndKind.CANCELLED: BatchJobExitReason.KILLED,
    EndKind.LOST: BatchJobExitReason.LOST,
    EndKind.NOT_RUN: BatchJobExitReason.ERROR,
}


@dataclass(slots=True)
class _Issued:
    """A job that Toil has issued: its description, its text for a shell, and its stage once it was handed over."""

    job: Any
    text: str
    stage: str = ""


class AsaBatchSystem(BatchSystemCleanupSupport):
    """Runs Toil's jobs in allocations that asa requests ahead of time."""

    def __init__(self, config: Any, maxCores: float, maxMemory: int, maxDisk: int) -> None:  # noqa: N803 - Toil's names
        """End the jobs that an earlier leader has left. A run begins only once a job is ready."""
        super().__init__(config, maxCores, maxMemory, maxDisk)
        self._ahead = Ahead(config)
        self._issued: dict[int, _Issued] = {}
        self._numbers: dict[str, int] = {}  # by stage handed over
        self._local: dict[int, str] = {}  # jobs that run on the leader
        self._ready: list[int] = []  # issued since the last handover
        self._ended: deque[Ending] = deque()
        self._logs: dict[int, Path | None] = {}  # of jobs that have failed, until Toil has asked for them
        with errors_as(InconsistentConfigurationError):
            self._session = HostSession(
                terms=_TERMS,
                given=SimpleNamespace(**{name: getattr(config, f"asa_{name}") for name in OPTIONS}),
                asks=lambda opened: ToilRequests(config, opened.backend == "local"),
                runs=runs_of(config),
                workflow=name_of_run(sys.argv),
                max_jobs=upper_bound(config.max_jobs),
                say=_log.info,
                warn=_log.warning,
                on_job=self._tell_job,
            )

    def _tell_job(self, stage: str, job_id: str) -> None:
        if self._outbox is not None:
            self._outbox.publish(ExternalBatchIdMessage(self._numbers[stage], job_id, type(self).__name__))

    @classmethod
    def supportsAutoDeployment(cls) -> bool:  # noqa: N802
        """Return whether code is sent along with jobs: nodes see the environment of the leader."""
        return False

    # ------------------------------------------------------------------ jobs that Toil issues

    def issueBatchJob(self, command: str, job_desc: Any, job_environment: dict[str, str] | None = None) -> int:  # noqa: N802
        """Take a job; jobs that are issued one after the other are handed over together, so that they can share."""
        local: int | None = self.handleLocalJob(command, job_desc)
        self._ahead.issued(job_desc)
        if local is not None:
            self._local[local] = str(job_desc.jobStoreID)
            return local
        self.check_resource_request(job_desc)
        worker, _, rest = command.partition(" ")
        exports = {**self.environment, **(job_environment or {})}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
        number: int = self.getNextJobID()
        self._issued[number] = _Issued(job_desc, "\n".join([*lines, f"exec {shutil.which(worker) or worker} {rest}"]))
        self._ready.append(number)
        return number

    def _check_accelerator_request(self, requirer: Any) -> None:
        if any(one["kind"] != "gpu" for one in requirer.accelerators):
            raise InsufficientSystemResources(requirer, "accelerators", details=["asa knows GPUs alone."])

    def _hand_over(self) -> None:
        """Pass the new part of the graph to asa, then hand over the jobs that are ready."""
        if not self._ready:
            return
        ready, self._ready = self._ready, []
        with errors_as(InconsistentConfigurationError):
            if not self._session.knows(str(self._issued[number].job.jobStoreID) for number in ready):
                self._session.read(self._ahead.nodes())
            with self._session.at_once():
                for number in ready:
                    issued = self._issued[number]
                    node, comes_again = self._ahead.chain_of(issued.job).node(), issued.job.remainingTryCount > 1
                    issued.stage = self._session.hand_over(node, issued.text, may_come_again=comes_again)
                    self._numbers[issued.stage] = number

    # ------------------------------------------------------------------ what Toil asks

    def getIssuedBatchJobIDs(self) -> list[int]:  # noqa: N802
        """Return the jobs that were issued and that Toil does not know to have ended."""
        return [*self.getIssuedLocalJobIDs(), *self._issued]

    def getRunningBatchJobIDs(self) -> dict[int, float]:  # noqa: N802
        """Return for how long each running job has run, in seconds."""
        running: dict[int, float] = self.getRunningLocalJobIDs()
        ours = self._session.running().items()
        return running | {self._numbers[name]: lasts_s for name, lasts_s in ours if name in self._numbers}

    def getUpdatedBatchJob(self, maxWait: int) -> UpdatedBatchJobInfo | None:  # noqa: N802, N803
        """Hand over what is ready; then return a job that has ended, or None if none does within the time."""
        self._hand_over()
        end_s = time.monotonic() + maxWait
        while (update := self._update()) is None and (left_s := end_s - time.monotonic()) > 0:
            self._session.news.wait(min(left_s, _LOOK_S))
            self._session.news.clear()
        return update

    def _update(self) -> UpdatedBatchJobInfo | None:
        if local := self.getUpdatedLocalJob(0):
            if name := self._local.pop(local.jobID, ""):
                self._ahead.ended(name)
            return local
        if not self._ended:
            with errors_as(InconsistentConfigurationError):
                self._ended.extend(ending for ending in self._session.hear() if ending.stage in self._numbers)
        return self._told(self._ended.popleft()) if self._ended else None

    def _told(self, ending: Ending) -> UpdatedBatchJobInfo:
        number = self._numbers[ending.stage]
        code = 0 if ending.completed else (ending.end and ending.end.exit_code) or EXIT_STATUS_UNAVAILABLE_VALUE
        if not ending.completed:
            self._logs[number] = ending.log
            _log.warning(self._session.failure(ending))
        self._forget(ending)
        return UpdatedBatchJobInfo(number, code, _REASONS[ending.how], ending.ran_s, ending.job_id or None)

    def _forget(self, ending: Ending) -> None:
        self._session.ended(ending)
        self._ahead.ended(str(self._issued.pop(self._numbers.pop(ending.stage)).job.jobStoreID))

    def killBatchJobs(self, jobIDs: list[int]) -> None:  # noqa: N802, N803
        """Cancel jobs, and wait until they are gone."""
        self.killLocalJobs(jobIDs)
        for number in {*jobIDs} & {*self._ready}:
            self._ready.remove(number)
            del self._issued[number]
        stages = {self._issued[number].stage for number in jobIDs if number in self._issued}
        with errors_as(InconsistentConfigurationError):
            self._ended.extend(self._session.withdraw(stages - {ending.stage for ending in self._ended}))
        for ending in [one for one in self._ended if one.stage in stages]:
            self._ended.remove(ending)
            self._forget(ending)

    def format_std_out_err_glob(self, toil_job_id: int) -> str:
        """Return the pattern of the files that a job has printed to, for Toil to show where a worker left no log."""
        return glob.escape(str(self._logs.pop(toil_job_id, None) or ""))

    def shutdown(self) -> None:
        """Cancel jobs that are no longer needed, and wait until they have ended, or the user interrupts."""
        if self._issued:
            self._session.cancel()
        self._session.end()
        self.shutdownLocal()

    # ------------------------------------------------------------------ options

    @classmethod
    def add_options(cls, parser: Any) -> None:
        """Add asa's options; those of Toil's own batch system for Slurm are there, and have their effect here too."""
        for name, option in OPTIONS.items():
            variable = {} if option.is_list else {"env_var": f"TOIL_ASA_{name.upper()}"}
            parser.add_argument(_TERMS.option(name), dest=f"asa_{name}", **option.for_argparse(), **variable)

    @classmethod
    def setOptions(cls, setOption: Any) -> None:  # noqa: N802, N803
        """Let Toil's configuration have these options."""
        SlurmBatchSystem.setOptions(setOption)
        for name in OPTIONS:
            setOption(f"asa_{name}")

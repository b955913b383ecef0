"""Converts a `JobSpec` into a job for Slurm: its script, and its request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from asa.backends.shell.marks import MarksFolder
from asa.backends.shell.script import Payload, payload_of, refuse_unwritable

from asa.backend import Capabilities, JobSpec
from asa.errors import SubmitRejectedError
from asa.keys import asked, terms_of
from asa.requests import without_size

from .defaults import JobDefaults
from .dependencies import Passed
from .identity import comment_of
from .link import SlurmJob, is_renumbered, numbered
from .options import variables_of_steps, without_nodes
from .resizing import for_more_nodes, waits_for_more
from .sbatch_variables import filled
from .script import LONGEST_SCRIPT_BYTES, batch_script, before_steps, group_script
from .tracking import BY_TASK

_ALL_MEMORY = "--mem=0"
_EXCLUSIVE = "--exclusive"


class JobWriter:
    """Writes the jobs of a run for Slurm, with the site's defaults."""

    def __init__(self, defaults: JobDefaults, folder: MarksFolder) -> None:
        self._defaults, self._folder = defaults, folder

    def refuse_unwritable(self, spec: JobSpec) -> None:
        """Refuse a job with texts that cannot be written."""
        terms = (str(value) for value in terms_of(spec).values())
        refuse_unwritable(spec, spec.partition, *terms, *_texts_of(self._defaults))

    def script(self, spec: JobSpec, name: str, site: Capabilities) -> str:
        """Return the script. Raises `SubmitRejectedError`: the script is longer than Slurm accepts."""
        return _checked(batch_script(self._payload(spec, name, site)), spec)

    def group_script(
        self, name: str, specs: Mapping[str, JobSpec], site: Capabilities, *, output: str, number: str
    ) -> str:
        """Return the script of an array of several jobs, given by their full names; see `script.group_script`.

        Raises `SubmitRejectedError`: as for `script`.
        """
        payloads = [self._payload(spec, own_name, site) for own_name, spec in specs.items()]
        return _checked(group_script(name, payloads, output, number), next(iter(specs.values())))

    def _payload(self, spec: JobSpec, name: str, site: Capabilities) -> Payload:
        return payload_of(
            spec,
            name,
            str(self._defaults.folder),
            self._folder.marks,
            self._folder.posts,
            walltime_s=spec.walltime_s,
            heeds=heeds(spec),
            is_renumbered=is_renumbered(spec, site),
            before=before_steps(spec, site.cores_per_node, rises=waits_for_more(spec, site)),
        )

    def job(
        self, spec: JobSpec, name: str, script: str, passed: Passed, site: Capabilities, *, output: str = ""
    ) -> SlurmJob:
        """Return the job for Slurm. `output`: name of its output files; by default its own."""
        defaults, output = self._defaults, output or name
        job = SlurmJob(
            name=name,
            script=script,
            folder=str(defaults.folder),
            **self._asked_of(spec, site),
            walltime_s=spec.walltime_s,
            stdout=self._folder.output(output, "out"),
            stderr=self._folder.output(output, "err"),
            partition=spec.partition or defaults.partition,
            qos=defaults.qos,
            constraint=defaults.constraint,
            dependency=passed.words,
            begin_s=passed.begin_s,
            held=spec.held,
            environment=defaults.submission(spec.secrets),
            comment=comment_of(spec.token, spec.comment),
            **numbered(spec, site),
        )
        job = filled(job, defaults.options)
        environment = variables_of_steps(job.environment, job.options)
        return replace(job, options=without_nodes(job.options, spec.avoid), environment=environment)

    def _asked_of(self, spec: JobSpec, site: Capabilities) -> dict[str, Any]:
        """Return a job's request except its walltime: in its own options if it has these, else in asa's."""
        spec = for_more_nodes(spec, site)
        options, per_node = _with_own_nodes(spec), site.cores_per_node
        asks = asked(spec) | {"account": spec.account or self._defaults.account}
        if spec.request is not None:
            given = (*spec.request, *without_size(options))
            return {"cores": 0, **asks, "memory_bytes": 0, "gpus": 0, "options": given}
        whole = spec.cores // per_node if spec.exclusive and per_node and not spec.nodes else spec.nodes
        # perhaps only one of several stages requested it
        memory = {"memory_bytes": 0} if _ALL_MEMORY in spec.options else {}
        cores = spec.tasks * spec.cpus_per_task or spec.cores
        size = {"cores": cores, "nodes": whole, "cpus_per_task": spec.cpus_per_task}
        return size | asks | memory | {"options": options}


def _checked(script: str, spec: JobSpec) -> str:
    if (size := len(script.encode())) >= LONGEST_SCRIPT_BYTES:
        raise SubmitRejectedError(
            f"has a script of {size / 1e6:.1f} MB, and Slurm takes 4 MB",
            where=f"job {spec.name!r}",
            hint="Put its commands into a file, and name that: a list of tasks as tasks_file.",
        )
    return script


def heeds(spec: JobSpec) -> str:
    """Return what follows if Slurm reports that memory ran out: in a list, each task is judged if the job sees it."""
    return BY_TASK if spec.shares_tasks and spec.out_of_memory == "fail" else spec.out_of_memory


def _texts_of(defaults: JobDefaults) -> tuple[str, ...]:
    words = (defaults.account, defaults.qos, defaults.partition, defaults.constraint, str(defaults.folder))
    return *words, *defaults.environment.keys(), *defaults.environment.values()


def _with_own_nodes(spec: JobSpec) -> tuple[str, ...]:
    """Return a job's options, which may already say with which jobs it shares its nodes."""
    says = any(option.partition("=")[0] == _EXCLUSIVE for option in spec.options)
    return spec.options if says or not spec.exclusive else (*spec.options, _EXCLUSIVE)

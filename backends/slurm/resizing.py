"""Resizing of running jobs: the settings, the abilities for plans, and the findings of `asa doctor`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TypedDict

from pydantic import BaseModel

from asa.backend import Capabilities, Finding, JobSpec

_FROM_OUTSIDE = "nodes"  # what a link must be able to change
MORE_NODES = "more nodes"
"""A property of `SlurmLink.changeable`: a running job can get more nodes (`SlurmLink.allocate`)."""
_PERMITTED = "permit_job_expansion"


class Resizability(TypedDict):
    """Fields of `asa.backend.Capabilities`."""

    shrink_by: int
    shrinks_from_outside: bool
    grow_by: int


class ResizingSettings(BaseModel):
    """The settings: whether a running job may give nodes back, by `scontrol` on its first node, and get more.

    `grow`: None for what Slurm's configuration says.
    """

    shrink: bool = True
    grow: bool | None = None

    def resizability(self, cores_per_node: int, changeable: Collection[str], config: Mapping[str, str]) -> Resizability:
        """Return how running jobs can be resized. `changeable`: see `SlurmLink.changeable`."""
        can_grow = permits_growth(config) if self.grow is None else self.grow
        return {
            "shrink_by": cores_per_node if self.shrink else 0,
            "shrinks_from_outside": self.shrink and can_resize(changeable),
            "grow_by": cores_per_node if can_grow and MORE_NODES in changeable else 0,
        }

    @property
    def says_how_resized(self) -> bool:
        """Whether the settings have all values about it that would be read from Slurm's configuration."""
        return self.grow is not None

    @staticmethod
    def resizing_settings(config: Mapping[str, str]) -> dict[str, bool]:
        """Return the settings that Slurm's configuration shows."""
        permitted = permits_growth(config)
        return {} if permitted is None else {"grow": permitted}

    def resizing_found(self, changeable: Collection[str], config: Mapping[str, str]) -> Iterator[Finding]:
        """Yield what is found by a link that cannot resize, and whether the site lets jobs get more nodes."""
        if not can_resize(changeable):
            yield Finding(
                "Shrinking jobs",
                "not from here by these means; a job's own script does, between its stages",
                "good" if self.shrink else "note",
                "" if self.shrink else "shrink = false says that jobs keep their nodes here.",
            )
        permitted = permits_growth(config)
        if self.grow is not None and permitted not in (None, self.grow):
            said = "may not" if permitted else "may"
            yield Finding(
                "Growing jobs",
                f"SchedulerParameters {'has' if permitted else 'has not'} {_PERMITTED}",
                "note",
                f"Your site file says that running jobs {said} get more nodes (grow): that is what asa goes by.",
            )
        elif permitted and MORE_NODES not in changeable:
            yield Finding(
                "Growing jobs",
                f"the site lets running jobs get more nodes ({_PERMITTED}), but not by the REST API",
                "note",
                "There, a request gets no answer while it waits for nodes. The backend slurm-cli can ask.",
            )
        elif permitted:
            found = f"running jobs can get more nodes ({_PERMITTED}): strategy elastic and asa-plan:grow=yes ask"
            yield Finding("Growing jobs", found, "good")
        elif permitted is False:
            yield Finding(
                "Growing jobs",
                f"running jobs get no more nodes: SchedulerParameters has no {_PERMITTED}",
                "good",
                "A workflow is then a chain of jobs that only shrink.",
            )


def permits_growth(config: Mapping[str, str]) -> bool | None:
    """Whether a running job can get more nodes, by slurm.conf; None if that is not known.

    Examples
    --------
    >>> permits_growth({"SchedulerParameters": "bf_continue,permit_job_expansion"}), permits_growth({})
    (True, None)
    """
    if "SchedulerParameters" not in config:
        return None
    return _PERMITTED in config["SchedulerParameters"].split(",")


def can_resize(changeable: Collection[str]) -> bool:
    """Whether a link can shrink a running job."""
    return _FROM_OUTSIDE in changeable


def waits_for_more(spec: JobSpec, site: Capabilities) -> bool:
    """Whether a job needs more cores for some step than it has before it, and can get them."""
    widths = (spec.cores, *(step.cores for step in spec.steps if step.cores))
    return site.grow_by > 0 and any(later > former for former, later in pairwise(widths))


def for_more_nodes(spec: JobSpec, site: Capabilities) -> JobSpec:
    """Return a job's request; if the job is to get more nodes, for whole nodes, and never to be put back.

    A job that is put back begins on the nodes that it first had, and the ones that it took over would not come again.
    """
    if not waits_for_more(spec, site) or spec.cores % site.grow_by:
        return spec
    others = (option for option in spec.options if option != "--requeue")
    return replace(spec, exclusive=True, options=(*others, "--no-requeue"))

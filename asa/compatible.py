"""Which stages one job can run: what their requests, and their kinds of jobs, keep apart."""

from __future__ import annotations

from collections.abc import Sequence

from asa.keys import contradiction
from asa.requests import marked
from asa.workflow import Stage

_OF_SITE = "the site's own"
_MEMORY = tuple(f"--{name}" for name in sorted(marked("memory")))


def conflict(stages: Sequence[Stage], *, whole: bool = False) -> str:
    """Return what keeps stages from sharing a job; empty if nothing does, or if there is only one.

    `whole`: whether it is the one job of a run, in which a stage that continues in legs runs as one.

    Examples
    --------
    >>> conflict([Stage("a", cores=1, account="astro"), Stage("b", cores=1, account="bio")])
    'its stages ask for 2 accounts (astro, bio), and share one job'
    """
    if len(stages) < 2:
        return ""
    for stage in () if whole else stages:
        if stage.own_jobs and not stage.takes_turns:
            return f"{stage.name} {stage.own_jobs}, so it cannot share a job: use another strategy"
    partitions = sorted({stage.partition for stage in stages})
    said = [partition or _OF_SITE for partition in partitions]
    apart = ("partitions", said) if len(said) > 1 else contradiction(stages)
    if apart is not None:
        return f"its stages ask for {len(apart[1])} {apart[0]} ({', '.join(apart[1])}), and share one job"
    own = [{option.partition("=")[0]: option for option in stage.options} for stage in stages]
    values = {name: option for options in own for name, option in options.items()}
    for name in sorted(values):
        words = sorted({options.get(name, f"no {name}") for options in own})
        if len(words) > 1:
            return f"its stages ask for {' and '.join(words)}, and share one job"
    memory = next((values[name] for name in _MEMORY if name in values), "--mem=0")
    if memory != "--mem=0" and any(stage.memory_bytes for stage in stages):
        return f"its stages ask for memory by their key and by {memory}, and share one job"
    return ""

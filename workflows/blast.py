"""BLAST: a search in a database and a merge (Section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence

from asa.workflow import Workflow

from ._chain import ChainStage, chain

_LINKS = (ChainStage("search", parallel=True, share=1.0), ChainStage("merge", parallel=False, share=1.0))


def blast(cores: int, widths: Sequence[int] = ()) -> Workflow:
    """Make BLAST for a peak core count: a long search on all cores, then a short merge on one.

    Parameters
    ----------
    cores
        Peak cores, at least 1; the paper ran 28, 56, 112, 160, 320 and 640.
    widths
        Further widths in which its parallel stages may be asked for; by default none.
    """
    return chain("blast", cores, _LINKS, widths)

"""Statistics: two sequential and two parallel stages, intertwined (Section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence

from asa.workflow import Workflow

from ._chain import ChainStage, chain

# The paper says which kinds of stages there are, and that each is long, but not how long: equal shares.
_LINKS = (
    ChainStage("load", parallel=False, share=1.0),
    ChainStage("moments", parallel=True, share=1.0),
    ChainStage("combine", parallel=False, share=1.0),
    ChainStage("quantiles", parallel=True, share=1.0),
)


def statistics(cores: int, widths: Sequence[int] = ()) -> Workflow:
    """Make Statistics for a peak core count: stages two and four use all cores, the others one.

    Parameters
    ----------
    cores
        Peak cores, at least 1; the paper ran 28, 56, 112, 160, 320 and 640.
    widths
        Further widths in which its parallel stages may be asked for; by default none.
    """
    return chain("statistics", cores, _LINKS, widths)

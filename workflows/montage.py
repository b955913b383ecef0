"""Montage: an image mosaic in nine stages (Section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence

from asa.workflow import Workflow

from ._chain import ChainStage, chain

# Shares are the summed run times by executable of the largest public 2MASS run, of 3 degrees (WfInstances, montage on
# Chameleon); its mViewer takes the place of the last two stages. The paper's run is of 8 degrees.
_LINKS = (
    ChainStage("mProject", parallel=True, share=1526.9),
    ChainStage("mDiffFit", parallel=True, share=105.6),
    ChainStage("mConcatFit", parallel=False, share=2.3),
    ChainStage("mBgModel", parallel=False, share=20.9),
    ChainStage("mBackground", parallel=True, share=87.5),
    ChainStage("mImgtbl", parallel=False, share=0.6),
    ChainStage("mAdd", parallel=False, share=1.1),
    ChainStage("mShrink", parallel=False, share=1.2),
    ChainStage("mJPEG", parallel=False, share=1.2),
)


def montage(cores: int, widths: Sequence[int] = ()) -> Workflow:
    """Make Montage for a peak core count: stages one, two and five use all cores, the others one.

    Parameters
    ----------
    cores
        Peak cores, at least 1; the paper ran 28, 56, 112, 160, 320 and 640.
    widths
        Further widths in which its parallel stages may be asked for; by default none.
    """
    return chain("montage", cores, _LINKS, widths)

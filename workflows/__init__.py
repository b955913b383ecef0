"""The three workflows of the ASA paper's evaluation, at any peak core count.

>>> from asa.workflows import montage
>>> flow = montage(112)
>>> len(flow.stages), round(flow.stage_core_hours(cores_per_node=28))
(9, 20)
"""

from .blast import blast
from .montage import montage
from .statistics import statistics

__all__ = ["blast", "montage", "statistics"]

"""An objective of your own for the agent that learns to schedule: the cost of a second of waiting, job by job.

Here somebody sits in front of a screen and waits for each short job, so it costs twenty times as much as another job.
An agent learns with this objective on a small machine, for some seconds on one core. Then it is compared, on days that
no agent has seen, with order of age and with the agent that ships with asa. An agent begins with short jobs first,
which suits this objective, so a little training improves it only a little. Serious training takes minutes, and a log of
the machine that it is for; see `asa dras train --help`.

Training needs PyTorch, `pip install 'asa-client[dras]'`. Using the trained agent does not, as with
`asa simulate LOG --scheduler dras --option weights=out/own_objective.npz`.

    python examples/own_objective.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from asa.backends.dras.network import pytorch
from asa.backends.dras.patient import Oldest, Patient
from asa.backends.dras.scoring import score
from asa.backends.dras.state import Integers
from asa.backends.dras.weights import Ranked, save_agent, shipped
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.workload import WorkloadModel
from numpy.typing import NDArray
from rich.console import Console

from asa.errors import MissingExtraError
from asa.studies.dras.training import Config, Material, Training

NODES, DAY_S = 64, 86400
OUT = Path("out/own_objective.npz")


@dataclass(frozen=True)
class ShortJobs:
    """A second of waiting costs 1 for jobs that ask for a short time, and less for others.

    An agent's file records its objective as text, for which a dataclass is well suited.

    Parameters
    ----------
    short_s
        Longest walltime that counts as short, in seconds.
    others
        Cost of a second for other jobs.
    """

    short_s: int = 1800
    others: float = 0.05

    def __call__(
        self, sizes: Integers, requests_s: Integers, waits_s: Integers, *, nodes: int
    ) -> NDArray[np.float64] | Integers:
        """Return, for each waiting job, the cost of one more second of waiting."""
        del sizes, waits_s, nodes  # an objective may also count these
        costs: NDArray[np.float64] = np.where(requests_s <= self.short_s, 1.0, self.others)
        return costs


def main(episodes: int = 5) -> None:
    """Train with this objective, and print the improvement."""
    console = Console(highlight=False)
    try:
        pytorch().set_num_threads(1)
    except MissingExtraError as error:
        console.print(f"Skipped: {error}", markup=False)
        return
    model = WorkloadModel(Machine("small", NODES, 1), load=0.9, log2_middle=3.0, log2_widest=6.0)
    cost = ShortJobs()
    material = Material(NODES, model.generate(4 * DAY_S, 1), model.generate(2 * DAY_S, 2), model)
    size = Config(sampled=0, real=2, synthetic=episodes - 2, days=2, exams=1)
    training = Training(material, size, kind="ppo", cost=cost, seed=1)
    for episode in training:
        console.print(f"{episode.number:2}. {episode.jobs} jobs: costs {-episode.worth:.2f} of order of age's")
    assert isinstance(training.best, Ranked)
    OUT.parent.mkdir(exist_ok=True)
    save_agent(training.best, OUT)

    unseen = model.generate(7 * DAY_S, 3)
    console.print(f"By {cost}, on {len(unseen):,} jobs that none has seen:")
    agents = {
        "order of age": Patient(Oldest(), patience=0.0, cost=cost),
        "the agent that ships": shipped().scheduler(cost=cost),
        "the new agent": training.best.scheduler(cost=cost),
    }
    for name, scheduler in agents.items():
        found = score(unseen, NODES, scheduler)
        console.print(f"{-found.reward:8,.0f} a job, mean wait {found.mean_wait_s / 3600:.1f} h: {name}", markup=False)


if __name__ == "__main__":
    main()

"""One learner per job geometry, kept between runs."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from asa.errors import InputError, StateError
from asa.estimators.algorithm1 import Asa, Policy, checked_policy
from asa.estimators.base import Distribution, Prediction, WaitObservation
from asa.geometry import JobGeometry

__all__ = ["WaitBank"]

_FORMAT = "asa-bank"
_VERSION = 1


def _mode_of(target: Path) -> int:
    """Permissions that a file keeps when it is replaced, or that a new one would get here."""
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _geometry(document: dict[str, Any]) -> JobGeometry:
    geometry = JobGeometry(**document)
    whole = all(isinstance(value, int) for value in (geometry.size_class, geometry.walltime_class))
    if not whole or not all(isinstance(value, str) for value in (geometry.system, geometry.partition)):
        raise StateError(f"{document} is no job geometry", hint="The file was changed.")
    return geometry


class WaitBank:
    """A learner for each geometry that was ever asked for, made on first use.

    Each learner has a generator of its own, seeded from the bank's seed and the geometry, so that what one geometry
    sees never changes what another predicts.

    Parameters
    ----------
    policy, repetitions
        Of the learners, see `Asa`.
    seed
        Of the bank.

    Examples
    --------
    >>> bank = WaitBank(policy="tuned", seed=1)
    >>> geometry = JobGeometry.of(cores=112, walltime_s=3600)
    >>> for _ in range(20):
    ...     bank.observe(geometry, 450.0, bank.predict(geometry))
    >>> bank.predict(geometry).wait_s
    450.0
    """

    def __init__(self, policy: Policy = "tuned", *, repetitions: int = 50, seed: int = 0) -> None:
        self.policy: Policy = checked_policy(policy)
        self.repetitions = repetitions
        self.seed = seed
        self._learners: dict[JobGeometry, Asa] = {}

    def __len__(self) -> int:
        return len(self._learners)

    def __iter__(self) -> Iterator[JobGeometry]:
        return iter(sorted(self._learners))

    def __getitem__(self, geometry: JobGeometry) -> Asa:
        """Return the learner of a geometry, making it if there is none yet."""
        learner = self._learners.get(geometry)
        if learner is None:
            key = json.dumps([self.seed, *asdict(geometry).values()]).encode()
            entropy = int.from_bytes(hashlib.sha256(key).digest()[:16], "big")
            learner = Asa(self.policy, repetitions=self.repetitions, seed=np.random.SeedSequence(entropy))
            self._learners[geometry] = learner
        return learner

    def predict(self, geometry: JobGeometry) -> Prediction:
        """Predict the wait of a job of this geometry that is submitted now."""
        return self[geometry].predict()

    def observe(
        self,
        geometry: JobGeometry,
        observation: WaitObservation | float,
        prediction: Prediction | None = None,
    ) -> None:
        """Learn a wait of this geometry; `prediction` is the one that was acted upon, if there was one."""
        self[geometry].observe(observation, prediction)

    def distribution(self, geometry: JobGeometry) -> Distribution:
        """Say what is believed of this geometry now."""
        return self[geometry].distribution()

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file; a reader sees the old file or the new one, never half of one.

        Raises
        ------
        StateError
            The file cannot be written.
        """
        target = Path(path)
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "policy": self.policy,
            "repetitions": self.repetitions,
            "seed": self.seed,
            "learners": [{"geometry": asdict(key), "state": self._learners[key].state()} for key in self],
        }
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=target.parent, prefix=f".{target.name}.", delete=False, encoding="utf-8"
            ) as file:
                try:
                    json.dump(document, file)
                    file.flush()
                    os.fsync(file.fileno())
                    Path(file.name).chmod(_mode_of(target))
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
            Path(file.name).replace(target)
        except OSError as error:
            raise StateError(f"cannot be written: {error.strerror}", where=str(target)) from error

    @classmethod
    def load(cls, path: str | Path) -> WaitBank:
        """Read a bank that continues bit for bit where the saved one stood.

        Raises
        ------
        StateError
            The file is missing, is no bank, or is of a later version.
        """
        where = str(path)
        try:
            document: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise StateError(f"cannot be read: {error.strerror}", where=where) from error
        except ValueError as error:
            raise StateError(
                f"is no JSON: {error}", where=where, hint="Restore it, or delete it to learn anew."
            ) from error
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise StateError("is no bank of wait estimates", where=where, hint="Name a file that `save` wrote.")
        if document.get("version") != _VERSION:
            raise StateError(
                f"is of version {document.get('version')}, this asa reads {_VERSION}",
                where=where,
                hint="Upgrade asa-client.",
            )
        try:
            bank = cls(document["policy"], repetitions=document["repetitions"], seed=document["seed"])
            for entry in document["learners"]:
                geometry = _geometry(entry["geometry"])
                bank._learners[geometry] = Asa.from_state(entry["state"])
        except InputError as error:
            raise StateError(error.message, where=where, hint=error.hint) from error
        except (KeyError, TypeError) as error:
            raise StateError(f"lacks {error}", where=where, hint="Restore it, or delete it to learn anew.") from error
        return bank

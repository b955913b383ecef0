"""Toil's jobs through asa: ``--batchSystem asa``; Toil finds a batch system by the beginning of a module's name."""

from typing import Any

from toil.batchSystems.registry import add_batch_system_factory


def _batch_system() -> Any:
    from .batch_system import AsaBatchSystem  # noqa: PLC0415 - Toil reads this module at each of its commands

    return AsaBatchSystem


add_batch_system_factory("asa", _batch_system)

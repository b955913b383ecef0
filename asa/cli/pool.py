"""``asa pool``: keeps one pool of allocations, which several runs of its user share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from asa.cli.doctor import BackendOption, SiteOption
from asa.cli.given import OptionsOption, given_settings
from asa.cli.terminal import write_notice
from asa.errors import InputError, UnavailableError
from asa.units import MAX_CORES, parse_duration

_LOOK_S = 1.0


def pool(
    folder: Annotated[
        Path, typer.Argument(help="Where it is kept, on a file system that compute nodes see.", metavar="FOLDER")
    ],
    maximum: Annotated[
        int, typer.Option(help="Upper bound of its cores, pending ones included.", min=1, max=MAX_CORES)
    ],
    cores: Annotated[
        int | None,
        typer.Option(
            help="Cores of each of its jobs. [default: all of a node]", min=1, max=MAX_CORES, show_default=False
        ),
    ] = None,
    walltime: Annotated[str, typer.Option(help="Walltime of each of its jobs.")] = "1h",
    idle: Annotated[str, typer.Option(help="End when no run has been there for so long.")] = "10min",
    site: SiteOption = None,
    backend: BackendOption = None,
    settings: OptionsOption = None,
) -> None:
    """Keep a pool of allocations that several of your runs share, until you interrupt it.

    The runs: `ASA_POOL=FOLDER asa run flow.toml --strategy pool`. Only you can join it, since whoever can has code run
    in your name.

    Example: `asa pool pool --site mysite --maximum 128 --walltime 4h`

    Exit codes: 0 it was idle, or interrupted, 1 its jobs cannot run, 2 the input cannot be used.
    """
    from distributed import Client

    from asa.pool import AsaCluster
    from asa.pool.joining import JOINED, offer, withdraw
    from asa.pool.stages import node_of
    from asa.sites import open_facility

    idle_s = parse_duration(idle)
    given = given_settings(settings)
    width = cores or node_of(open_facility(backend, site, given), folder)
    if maximum < width:
        hint = f"Give {width} or more, or jobs of fewer cores (--cores)."
        raise InputError(f"is less than the {width} cores of one of its jobs", where=f"--maximum {maximum}", hint=hint)
    with AsaCluster(
        site=site, backend=backend, settings=given, cores=width, threads=width, walltime=walltime, folder=folder,
        n_workers=0,
    ) as cluster, Client(cluster) as own:  # fmt: skip
        cluster.adapt(minimum=0, maximum=maximum // width)
        offer(cluster)
        try:
            write_notice(f"Join it by: {JOINED}={folder} asa run flow.toml --strategy pool")
            since_s = time.monotonic()
            while time.monotonic() - since_s < idle_s:
                time.sleep(_LOOK_S)
                if why := cluster.stuck:
                    hint = "See to that, and keep it again."
                    raise UnavailableError(f"no worker comes: {why}", where=f"the pool in {folder}", hint=hint)
                if own.run_on_scheduler(_guests):
                    since_s = time.monotonic()
            write_notice(f"No run has been there for {idle}.")
        except KeyboardInterrupt:
            write_notice("The pool ends.")
        finally:
            withdraw(cluster.folder)


def _guests(dask_scheduler: object) -> int:
    """Return the number of clients other than the one that asks and dask's own."""
    return len(getattr(dask_scheduler, "clients", ())) - 2

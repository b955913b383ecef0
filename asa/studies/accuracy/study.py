"""Evaluates each estimator on every history, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from asa.core import plugins
from asa.errors import AsaError, InputError, MissingExtraError, RunError, UnknownNameError
from asa.history import JobHistory
from asa.studies.accuracy.prequential import Events, MakeEstimator, oracle, prequential, sees_queue
from asa.studies.accuracy.scores import Score, judge
from asa.studies.harness import counted, run_cells
from asa.waits import Surroundings


def installed(
    names: Sequence[str] | None = None,
    *,
    queue: bool = False,
    on_failure: Callable[[AsaError], None] | None = None,
) -> dict[str, MakeEstimator]:
    """Find estimators by name.

    `names`: by default all installed estimators, except those that see the queue or lack a package.
    `on_failure`: called with the error if one cannot be loaded or made; the others are still returned. Without it the
    first failure is raised.
    """
    found: dict[str, MakeEstimator] = {}
    for name in plugins.names("asa.estimators") if names is None else names:
        try:
            make: MakeEstimator = plugins.load("asa.estimators", name)
            with _blaming(name):
                wanted = names is not None or queue or not sees_queue(make(Surroundings()))
        except UnknownNameError:
            raise
        except MissingExtraError:
            if names is None:
                continue
            raise
        except AsaError as error:
            if on_failure is None:
                raise
            on_failure(error)
            continue
        if wanted:
            found[name] = make
    if not found:
        raise InputError("there is no estimator to evaluate", where="--estimators", hint="Name at least one.")
    return found


def evaluate(
    histories: Mapping[str, JobHistory],
    estimators: Mapping[str, MakeEstimator],
    *,
    seed: int = 0,
    by_geometry: bool = False,
    jobs: int | None = 1,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
    on_failure: Callable[[AsaError], None] | None = None,
) -> list[Score]:
    """Evaluate every estimator on every history.

    `estimators`: by name; with more than one process they must be importable. A new one is made for each history.
    `jobs`: number of processes; None for as many as this machine allows. Each evaluates pairs of an estimator and a
    history one after the other. Only the measured time depends on it.
    `on_progress`: called with the number of finished pairs, and of all.
    `on_failure`: called with the error if an estimator fails on a history; the others are still evaluated. Without it
    the first failure is raised.
    Returns: by history and estimator in the order given, the ``oracle`` last: the truth as prediction, for
    reference.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> waits, cores, hour = rng.exponential(600.0, 500), np.ones(500, int), np.full(500, 3600.0)
    >>> history = JobHistory(np.arange(500) * 60.0, waits, cores, hour, np.ones(500, bool))
    >>> scores = evaluate({"made up": history}, installed(["last"]))
    >>> [(score.estimator, score.jobs) for score in scores], scores[1].log10_error
    ([('last', 500), ('oracle', 500)], 0.0)
    """
    if not histories or not estimators:
        raise InputError("there is nothing to evaluate", hint="Give a trace and an estimator.")
    for trace, history in histories.items():
        if not history.started.any():
            raise InputError("has no job whose wait is known", where=trace, hint="Give a log with waits.")
    pairs = [(trace, name) for trace in histories for name in (*estimators, _ORACLE)]
    work = _Work(dict(histories), dict(estimators), seed, by_geometry)
    done = counted(lambda _what, done, of: on_progress(done, of), "evaluating", len(pairs))

    def tell(_pair: tuple[str, str], result: list[Score] | RunError) -> None:
        if isinstance(result, RunError):
            if on_failure is None:
                raise result
            on_failure(result)
        done()

    results = run_cells(_Work.do, pairs, work, jobs=jobs, on_end=tell)
    return [score for result in results if not isinstance(result, RunError) for score in result]


@contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Add the name of the estimator to an error; the estimator may be another author's."""
    try:
        yield
    except AsaError as error:
        raise RunError(f"failed: {error.message}", where=f"estimator {name!r}", hint=error.hint) from error
    except Exception as error:
        raise RunError(
            f"failed: {type(error).__name__}: {error}",
            where=f"estimator {name!r}",
            hint="Correct it, or leave it out with --estimators.",
        ) from error


_ORACLE = "oracle"


class _Work:
    """The histories and estimators; sent to each process once, which keeps the events of the last trace."""

    def __init__(
        self,
        histories: dict[str, JobHistory],
        estimators: dict[str, MakeEstimator],
        seed: int,
        by_geometry: bool,  # noqa: FBT001 - private
    ) -> None:
        self.histories, self.estimators, self.seed, self.by_geometry = histories, estimators, seed, by_geometry
        self._last: tuple[str, Events] | None = None

    def do(self, pair: tuple[str, str]) -> list[Score] | RunError:
        """Evaluate an estimator on a trace; return the error if it fails."""
        trace, name = pair
        history = self.histories[trace]
        if self._last is None or self._last[0] != trace:
            self._last = None  # releases its memory
            self._last = (trace, Events(history))
        timeline = self._last[1]
        try:
            if name == _ORACLE:
                forecasts = oracle(history)
            else:
                with _blaming(name):
                    forecasts = prequential(history, self.estimators[name], seed=self.seed, timeline=timeline)
        except RunError as error:
            return error
        return judge(
            history,
            forecasts,
            trace=trace,
            estimator=name,
            by_geometry=self.by_geometry,
            known_order=timeline.known_order,
        )

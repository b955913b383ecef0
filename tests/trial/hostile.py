"""Faults of a hostile world: what sites do to a client, as a fault for a while. `draw.WORLD` has them by kind."""

import threading
import time
from contextlib import suppress
from functools import partial

from .between import READ, Spoil
from .draw import Fault
from .faults import MORE, VoidError, _cluster, _job, _lasts, cancel_run
from .operator import Operator
from .place import Cluster


def _spoiled(spoil: Spoil, fault: Fault, operator: Operator) -> None:
    """Spoil answers for a while; one fault of this kind at a time."""
    cluster = _cluster(operator)
    operator.note("fired", f"{fault.kind}: {spoil.kind} of {' '.join(spoil.of)}")
    with operator.spoils:
        cluster.spoil(spoil)
        _lasts(fault, operator)
        cluster.spoil(None)
    operator.note("mended", fault.kind)


def _conf_empty(fault: Fault, operator: Operator) -> None:
    """Let commands find slurm.conf empty, as while it is written anew."""
    empty = _cluster(operator).root / "empty.conf"
    empty.touch()
    _spoiled(Spoil("conf", of=(*READ, "scontrol", "sbatch", "scancel"), conf=str(empty)), fault, operator)


def _accounting_lags(fault: Fault, operator: Operator) -> None:
    if not operator.trial.site.accounting:
        raise VoidError("there is no accounting")
    _spoiled(Spoil("empty", of=("sacct",)), fault, operator)


def _answers_empty(fault: Fault, operator: Operator) -> None:
    """Empty answers of the queue, and in every other trial of accounting, too."""
    _spoiled(Spoil("empty", of=READ if fault.pick < 0.5 else ("squeue",)), fault, operator)


def _numbers_anew(fault: Fault, operator: Operator) -> None:
    """Let the controller lose its state while jobs of the run are there; strangers get their numbers."""
    _job(fault, operator)
    cluster = _cluster(operator)
    operator.note("fired", "the controller forgets everything, and strangers' jobs get the old numbers")
    operator.lost = True
    last = max((int(job.partition("_")[0]) for job in cluster.jobs()), default=1)
    cluster.forget_all()
    if cluster.strangers is not None:
        cluster.strangers.submit(last + 3)
    operator.note("mended", "the controller forgets everything, and numbers begin anew")
    if fault.pick < 0.5 and operator.run is not None:
        cancel_run(operator)


def _other_cluster(fault: Fault, operator: Operator) -> None:
    """Let the client reach another cluster in place of its own, once it has a job."""
    _job(fault, operator)
    cluster = _cluster(operator)
    operator.note("fired", "another cluster answers")
    cluster.lead_elsewhere(there=True)
    _lasts(fault, operator)
    cluster.lead_elsewhere(there=False)
    operator.note("mended", "another cluster answers")


def _bad_node(fault: Fault, operator: Operator) -> None:
    """Let a node lack the work folder, or all that the run has on the shared disk."""
    cluster = _cluster(operator)
    node = f"n{1 + int(fault.pick * 400) % 4:03d}"
    hidden = operator.place.work if fault.pick < 0.6 else operator.place.work.parent
    operator.note("fired", f"{node} lacks {hidden.name}")
    cluster.slurm.blind(node, hidden, mode="777" if fault.pick * 100 % 1 < 0.5 else "755")
    _lasts(fault, operator)
    cluster.slurm.blind(node)
    operator.note("mended", f"{node} has {hidden.name} again")


def _able_to_run_out(operator: Operator, cluster: Cluster) -> list[str]:
    """Return the jobs that run a stage which would complete."""
    starts = [line.split() for line in operator.place.marks.splitlines() if line.startswith("start ")]
    steps = {step.name: step for step in operator.trial.steps}
    able = [
        words[3]
        for words in starts
        if (step := steps.get(words[1])) is not None and step.how == "ok" and not step.local
    ]
    there = cluster.jobs("RUNNING") if able else ()
    return [job for job in able if job in there]


def _out_of_memory(fault: Fault, operator: Operator) -> None:
    """Let Slurm say of the job that runs a stage that it ran out of memory, as where a child was killed in a pipe."""
    cluster = _cluster(operator)
    running = _able_to_run_out(operator, cluster)
    for _ in range(40):
        if running or operator.over.wait(0.25):
            break
        running = _able_to_run_out(operator, cluster)
    if not running or not operator.spoils.acquire(blocking=False):
        raise VoidError("no job of one stage runs, or another fault is there")
    try:
        operator.note("fired", f"Slurm says that job {running[-1]} ran out of memory")
        operator.out_of_memory.add(running[-1])
        cluster.spoil(Spoil("memory", of=READ, job=running[-1]))
        _lasts(fault, operator)
        cluster.spoil(None)
        operator.note("mended", fault.kind)
    finally:
        operator.spoils.release()


def show_late(operator: Operator) -> None:
    """Hide what steps give from all others for a while, as soon as the node that made it has surely seen it."""
    steps = {step.name: step.late_s for step in operator.trial.steps if step.late_s}
    done = 0
    while not operator.over.wait(0.2):
        ended = [line.split() for line in operator.place.marks.splitlines() if line.startswith("end ")]
        for _, name, _, _, code in ended[done:]:
            if name in steps and code == "0":
                threading.Thread(target=_hide, args=(operator, f"{name}.out", steps[name]), daemon=True).start()
        done = len(ended)


def _hide(operator: Operator, name: str, lasts_s: float) -> None:
    seen, away = operator.place.work / name, operator.place.work / f".late-{name}"
    time.sleep(1.0)
    with suppress(FileNotFoundError):
        seen.rename(away)
        operator.note("fired", f"{name} cannot be seen")
        operator.over.wait(lasts_s)
        away.rename(seen)
        operator.note("mended", f"{name} cannot be seen")


MORE |= {
    "answers_empty": _answers_empty,
    "answers_partial": partial(_spoiled, Spoil("partial", of=READ)),
    "answers_cut": partial(_spoiled, Spoil("cut", of=READ)),
    "answers_shuffled": partial(_spoiled, Spoil("shuffled", of=READ)),
    "answers_late": partial(_spoiled, Spoil("late", share=0.7)),
    "accounting_lags": _accounting_lags,
    "fails_before": partial(_spoiled, Spoil("before", share=0.7)),
    "fails_after": partial(_spoiled, Spoil("after", share=0.7)),
    "conf_empty": _conf_empty,
    "states_unknown": partial(_spoiled, Spoil("states", of=READ, share=0.8)),
    "reasons_unknown": partial(_spoiled, Spoil("reasons", of=READ, share=0.8)),
    "two_numbers": partial(_spoiled, Spoil("two_numbers", of=("sbatch",))),
    "numbers_anew": _numbers_anew,
    "out_of_memory": _out_of_memory,
    "other_cluster": _other_cluster,
    "bad_node": _bad_node,
}

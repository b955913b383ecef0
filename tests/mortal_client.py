"""A client that is killed at some point of a run, and calls of it that go wrong, over a world that outlives it."""

from asa.errors import SubmitDeferredError, SubmitInDoubtError, UnavailableError
from asa.estimators import WaitBank
from asa.estimators.store import WaitStore
from asa.runner import Journal, Run, run_all
from asa.strategies import load_strategy
from asa.workflow import Stage, Workflow

FLOW = Workflow(
    "flow",
    [
        Stage("a", cores=4, walltime_s=100),
        Stage("b", cores=1, walltime_s=50, after=("a",)),
        Stage("c", cores=4, walltime_s=30, after=("a",)),
        Stage("d", cores=8, walltime_s=30, after=("b", "c")),
    ],
)


class Killed(BaseException):
    """The client is no more."""


class Mortal:
    """A journal or backend of which the n-th touch, of all there are, kills."""

    def __init__(self, at=None):
        self.at, self.count, self.names = at, 0, []

    def touch(self, name):
        self.names.append(name)
        self.count += 1
        if self.count - 1 == self.at:
            raise Killed


class MortalJournal(Journal):
    """One whose writes are touches, before and after."""

    def __init__(self, path, mortal):
        super().__init__(path)
        self.mortal = mortal

    def append(self, *entries):
        kinds = " ".join(dict.fromkeys(entry.kind for entry in entries))
        self.mortal.touch(f"before {kinds}")
        super().append(*entries)
        self.mortal.touch(f"after {kinds}")


class MortalBackend:
    """One whose calls are touches, before and after."""

    def __init__(self, inner, mortal):
        self.inner, self.mortal = inner, mortal

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name not in {"submit", "grow", "cancel", "find", "status", "wait"}:
            return found

        def call(*arguments, **named):
            self.mortal.touch(f"before {name}")
            answer = found(*arguments, **named)
            self.mortal.touch(f"after {name}")
            return answer

        return call


class MortalWithdrawingBackend(MortalBackend):
    """One over a world that keeps jobs from beginning, as Slurm's marks do: here it holds those that are pending."""

    def withdraw(self, job_id):
        self.mortal.touch("before withdraw")
        [status] = self.inner.status([job_id]).values()
        if status.start_s is None and not status.state.is_final:
            self.inner.hold(job_id)
        self.mortal.touch("after withdraw")
        return status.payload_start_s is None


def go(world, folder, strategy, mortal=None, flow=FLOW, backend=MortalBackend, **options):
    mortal = mortal or Mortal()
    journal = MortalJournal(folder / "journal.jsonl", mortal)
    with WaitStore(folder / "bank", durable=False) as store:
        bank = WaitBank("last", store=store, user="me")
        of = load_strategy(strategy) if isinstance(strategy, str) else strategy
        run = Run(flow, of, bank=bank, id="r" * 12, journal=journal)
        try:
            [result] = run_all(backend(world, mortal), [run], **options)
        finally:
            journal.close()
    return result


class Wrong:
    """A simulated world in which the n-th call of a kind fails."""

    def __init__(self, inner, kind, at, how):
        self.inner, self.kind, self.at, self.how, self.seen = inner, kind, at, how, 0

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name != self.kind:
            return found

        def call(*arguments, **named):
            self.seen += 1
            if self.seen - 1 == self.at:
                return self.how(found, *arguments, **named)
            return found(*arguments, **named)

        return call


def lost(_, *__):
    raise SubmitInDoubtError("the request was lost")


def answer_lost(submit, *arguments):
    submit(*arguments)
    raise SubmitInDoubtError("the answer was lost")


def unavailable(_, *__):
    raise UnavailableError("nobody answers")


def deferred(_, *__):
    raise SubmitDeferredError("too many jobs")

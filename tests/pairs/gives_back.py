"""A strategy that asks as another does, and gives the job of one stage back once, before that begins."""

from dataclasses import replace

from asa.strategies import Cancellation, Keep, Phase, Plan, PlannedJob, load_strategy


class GivesBack:
    """`how`: while it is ``queued``, or so ``behind`` another; ``allocated``, where it came early; its ``next`` leg."""

    def __init__(self, own, stage, how):
        self._own, self._stage, self._how, self.given_back = own, stage, how, 0
        self.forecast = own.forecast

    @classmethod
    def configured(cls, settings):
        return cls(load_strategy(settings["of"]), settings["stage"], settings["how"])

    def __getattr__(self, name):
        return getattr(self._own, name)

    def plan(self, view, forecast):
        plan = self._own.plan(view, forecast)
        one = view.stages[self._stage]
        if self.given_back:
            return plan
        if (job := self._to_give_back(view, one)) is not None:
            self.given_back += 1
            return Plan.of((), [Cancellation(job, "tried")])
        return self._early(view, plan) if self._how == "allocated" and one.phase is Phase.WAITING else plan

    def _to_give_back(self, view, one):
        if self._how == "next":
            return one.next_job_id
        is_it = one.phase is (Phase.ALLOCATED if self._how == "allocated" else Phase.QUEUED)
        return one.job_id if is_it and (self._how == "queued" or not view.is_ready(self._stage)) else None

    def _early(self, view, plan):
        """Ask for its job as soon as what it follows runs, and for that by itself."""
        early = PlannedJob((self._stage,), view.now_s, Keep.AWAIT, "tried", spare_walltime_s=1000.0)
        firsts = view.stages[self._stage].stage.after
        if view.run_or_hold_cores(firsts):
            return Plan.of([early])
        alone = tuple(job for job in plan.submissions if len(job.stages) == 1 and job.stages[0] in firsts)
        waits = any(view.stages[name].phase is Phase.WAITING for name in firsts)
        return replace(plan, submissions=alone) if alone or not waits else plan

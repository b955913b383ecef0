"""The plain model of a row: how each stage is to end, on any batch system, and what no client may do meanwhile."""

from dataclasses import dataclass, field

from asa.records import StageEnded, Started, Submitted
from asa.runner.entries import Intended
from asa.strategies import Keep
from pairs.kinds import KINDS

_COUNTS = {"bag": ("completed", "failed"), "elements": ("completed_count", "failed_count")}  # of units in a status


@dataclass
class Ending:
    """The end of each stage, and the exit codes of each payload, in order."""

    states: dict = field(default_factory=dict)
    runs: dict = field(default_factory=dict)

    @property
    def completes(self):
        return "failed" not in self.states.values()


def ending_of(stages, *, pays=True):
    """Go through the stages, which are in an order of the graph; without payloads (`pays`) nothing fails."""
    ending = Ending()
    for stage in stages:
        before = [ending.states[name] for name in stage.after]
        has_failed = "failed" in before or "blocked" in before
        completed = set(before) <= {"done"}
        if not {"success": completed, "failed": has_failed, "always": True}[stage.kind.when]:
            ending.states[stage.name] = "blocked" if has_failed else "skipped"
            continue
        ending.states[stage.name] = "done" if stage.kind.completes or not pays else "failed"
        ending.runs |= {f"{stage.name}{unit}": codes for unit, codes in stage.kind.runs.items()}
    return ending


def refusal_of(row):
    """Return words of why a row is refused before anything runs: what its first stage cannot have; empty if nothing.

    A job that all stages share has no legs; a pool's task, which shares a node, has no elements that are jobs either.
    """
    in_one_job = {"continues": "continues in legs"}
    in_a_pool = {"array": "is a job array", "continues": "continues in legs", "exclusive": "nodes of its own"}
    refused = {"big-job": in_one_job, "pool": in_a_pool}.get(row.strategy, {})
    return next((words for kind in row.kinds for key, words in refused.items() if KINDS[kind].has(key)), "")


def only_written(world, entries):
    """Have a batch system fail at a job that the journal, whose entries `entries` returns, does not have yet."""
    submit = world.submit

    def submit_if_written(spec):
        assert any(isinstance(one, Intended) and one.spec == spec for one in entries()), "not in the journal before"
        return submit(spec)

    world.submit = submit_if_written
    return world


def started_early(stages, records):
    """Return which jobs that depend on others were started before a stage that theirs follow had ended.

    On a local stage, which is no job, none can depend.
    """
    local = {stage.name for stage in stages if stage.kind.has("local")}
    after = {stage.name: set(stage.after) - local for stage in stages}
    ended_s = {record.stages[0]: record.time_s for record in records if isinstance(record, StageEnded)}
    depend = {one.job_id for one in records if isinstance(one, Submitted) and one.keep is Keep.DEPENDENCY}
    return [
        f"the job of {name} was started before {before} had ended"
        for job in records
        if isinstance(job, Started) and job.job_id in depend
        for name in job.stages
        for before in after[name]
        if before not in job.stages and job.time_s < ended_s.get(before, 0.0)
    ]


def wrong_shown(stages, ending, shown, *, pays=True):
    """Return what cannot be of what `asa status --output json` shows of stages; empty if nothing."""
    states = {one["stage"]: one["state"] for one in shown}
    if states != ending.states:
        return [f"shown as {states}, and is to be {ending.states}"]
    wrong = []
    for stage, one in zip(stages, shown, strict=True):
        if not pays or ending.states[stage.name] not in {"done", "failed"}:
            continue
        codes = [codes[-1] for codes in stage.kind.runs.values()]
        failed, code = sum(map(bool, codes)), one["exit_code"] or 0
        if code != codes[0] if len(codes) == 1 else bool(code) != bool(failed):
            wrong.append(f"{stage.name} is shown with exit code {code}; its units end with {codes}")
        counts = {kind: tuple(one[kind][key] for key in keys) for kind, keys in _COUNTS.items() if kind in one}
        if any(count != (len(codes) - failed, failed) for count in counts.values()):
            wrong.append(f"{stage.name} is shown with {counts} units completed and failed; they end with {codes}")
    return wrong


def wrong_in(stages, ending, lines):
    """Return what payloads' lines, in the order in which they were written, tell that cannot be; empty if nothing."""
    wrong, open_, ended = [], set(), {}
    of = {stage.name: [unit for unit in ending.runs if unit.partition(".")[0] == stage.name] for stage in stages}
    after = {unit: [other for name in stage.after for other in of[name]] for stage in stages for unit in of[stage.name]}
    for line in lines:
        what, unit, *code = line.split()
        if unit not in ending.runs:
            return [f"{unit} ran, which is not to"]
        if what == "begins":
            wrong += [f"{unit} began a second time meanwhile"] if unit in open_ else []
            wrong += [
                f"{unit} began before {other} had ended"
                for other in after[unit]
                if other in open_ or len(ended.get(other, ())) < len(ending.runs[other])
            ]
            open_.add(unit)
        else:
            open_.discard(unit)
            ended[unit] = (*ended.get(unit, ()), int(code[0]))
    wrong += [f"{unit} did not end" for unit in open_]
    wrong += [
        f"{unit} ended with {ended.get(unit)}, and is to with {codes}"
        for unit, codes in ending.runs.items()
        if ended.get(unit) != codes
    ]
    return wrong

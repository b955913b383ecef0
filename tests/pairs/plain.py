"""The plain model of a row: how each stage is to end, on any batch system."""

from dataclasses import dataclass, field

from pairs.kinds import KINDS


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

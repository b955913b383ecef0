"""Kinds of stages: their keys in a workflow file, and the ends of their payloads.

A new kind is one entry of `KINDS`.
"""

from dataclasses import dataclass, field

ONE = {"": (0,)}


@dataclass(frozen=True)
class Kind:
    """What a workflow file says of a stage, with {name} for its name, and what its payloads do, which are `step.sh`.

    `runs`: by unit, the exit codes with which its payload ends, one time after the other.
    """

    says: str
    runs: dict = field(default_factory=lambda: ONE)
    when: str = "success"

    @property
    def completes(self):
        return all(codes[-1] == 0 for codes in self.runs.values())

    @property
    def fails_at_times(self):
        return any(code not in {0, 85} for codes in self.runs.values() for code in codes)

    def has(self, key):
        return f"{key} = " in self.says


def units(count, **bad):
    """Count units from 1, which exit with 0; `of_2=(1, 0)`: but the second, which does so at its second try."""
    return {f".{number}": bad.get(f"of_{number}", (0,)) for number in range(1, count + 1)}


def one(says, *codes, when="success", by='command = "{}"'):
    """Say that one payload ends with some codes, time after time."""
    codes = codes or (0,)
    line = by.format(f"sh step.sh {{name}} {' '.join(map(str, codes))}")
    return Kind(f"{says}\n{line}", {"": codes}, when)


def tasks(says, **bad):
    """Say that it is a list of six tasks."""
    runs = units(6, **bad)
    lines = [f"sh step.sh {{name}}{unit} {' '.join(map(str, codes))}" for unit, codes in runs.items()]
    return Kind(f"{says}\ntasks = {lines}".replace("'", '"'), runs)


def array(says, numbers, **bad):
    """Say that it is a job array, of elements from 1 on."""
    runs = units(numbers, **bad)
    cases = " ".join(f"{unit[1:]}) set -- {' '.join(map(str, codes))};;" for unit, codes in runs.items())
    command = f"case $SLURM_ARRAY_TASK_ID in {cases} esac; sh step.sh {{name}}.$SLURM_ARRAY_TASK_ID $@"
    return Kind(f'{says}\ncommand = "{command}"', runs)


LEGS = 'continues = true\nwalltime = "20s"\ntotal = "50s"'
KINDS = {
    "single": one("cores = 4"),
    "small": one("cores = 1"),
    "node": one("nodes = 1"),
    "request": one('request = ["--ntasks=2", "--cpus-per-task=2"]'),
    "script": Kind('cores = 2\nscript = "{name}.sh"'),
    "prepared": one('cores = 2\nsetup = "export PREPARED=1"'),
    "files": one('cores = 2\noutputs = ["did"]\ninputs = ["step.sh"]'),
    "memory": one('cores = 4\nmemory = "100M"'),
    "gpus": one("cores = 2\ngpus = 2"),
    "exclusive": one("cores = 2\nexclusive = true"),
    "moldable": one('cores = [4, 2, 8]\nexpected = { 2 = "400s", 4 = "200s", 8 = "110s" }'),
    "local": one("local = true"),
    "tasks": tasks("cores = 4"),
    "tasks of 2 cores": tasks("cores = 4\ncpus_per_task = 2"),
    "moldable tasks": tasks('cores = [4, 2, 8]\nexpected = { 4 = "200s" }'),
    "tasks file": Kind('cores = 4\ntasks_file = "{name}.tasks"', units(6)),
    "bag": tasks("cores = 8\njobs = 4"),
    "bag of 1 to 4": tasks('cores = 8\njobs = "1..4"'),
    "bag of tasks of 2 cores": tasks("cores = 8\ncpus_per_task = 2\njobs = 2"),
    "moldable bag": tasks('cores = [4, 8]\nexpected = { 4 = "200s" }\njobs = 2'),
    "bag in a file": Kind('cores = 4\njobs = 2\ntasks_file = "{name}.tasks"', units(6)),
    "array": array('cores = 1\narray = "1-6"', 6),
    "throttled array": array('cores = 1\narray = "1-5%2"', 5),
    "array of 8 cores": array('cores = 8\narray = "1-5"', 5),
    "array of tasks of 4 cores": array('cores = 8\ncpus_per_task = 4\narray = "1-5%2"', 5),
    "array of nodes": array('nodes = 1\narray = "1-3"', 3),
    "array of nodes and cores": array('nodes = 1\ncores = 2\narray = "1-6"', 6),
    "array of one": array('cores = 2\narray = "1"', 1),
    "legs": one(f'cores = 4\n{LEGS}\nwarn = "USR1@2s"', 85, 85, 0),
    "legs that are not warned": one(f"cores = 4\n{LEGS}", 85, 85, 0),
    "moldable legs": one(f'cores = [4, 8]\n{LEGS}\nwarn = "USR1@2s"', 85, 0),
    "legs that are one": one(f'cores = 4\n{LEGS}\nwarn = "USR1@2s"', 0),
    "retried": one("cores = 2\nretries = 2", 1, 1, 0),
    "retried tasks": tasks("cores = 4\nretries = 2", of_2=(1, 1, 0)),
    "retried bag": tasks("cores = 4\njobs = 2\nretries = 2", of_2=(1, 1, 0)),
    "retried array": array('cores = 2\narray = "1-4"\nretries = 2', 4, of_2=(1, 1, 0)),
    "retried legs": one(f"cores = 4\n{LEGS}\nretries = 1", 85, 1, 85, 0),
    "failed": one("cores = 2", 3),
    "failed tasks": tasks("cores = 4\nretries = 1", of_2=(1, 1)),
    "failed bag": tasks("cores = 4\njobs = 2", of_2=(1,)),
    "failed array": array('cores = 2\narray = "1-4"', 4, of_2=(1,)),
    "failed legs": one(f"cores = 4\n{LEGS}", 85, 1),
    "after a failure": one("cores = 2", when="failed"),
    "in any case": one("cores = 2", when="always"),
}

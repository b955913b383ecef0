"""A rule that was written for Snakemake's own executor for Slurm gets the same job: options of both, side by side."""

import itertools
import json
import random

import pytest
from snakemake_noted import FORMER, NEWEST, workflow
from snakemake_runs import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SIZES = {
    "mpi": [{}, {"mpi": "srun"}],
    "nodes": [{}, {"nodes": 2}],
    "tasks": [{}, {"tasks": 4}],
    "tasks_per_node": [{}, {"tasks_per_node": 2}],
    "memory": [{}, {"mem_mb": 2000}, {"mem_mb_per_cpu": 500}],
    "gpus": [
        {},
        {"gpu": 2},
        {"gpu": 1, "gpu_model": "a100", "cpus_per_gpu": 3, "tasks_per_gpu": 1},
        {"gres": "gpu:1"},
    ],
}
SENT = ("--default-resources", "slurm_account=ours", "slurm_partition=normal", "runtime=60")


def combinations():
    """Return a rule for each combination of sizes, each with one and with four threads."""
    each = itertools.product((1, 4), *SIZES.values())
    return {
        f"r{n}": (threads, dict(itertools.chain(*map(dict.items, some)))) for n, (threads, *some) in enumerate(each)
    }


@pytest.mark.parametrize("plugin", [NEWEST, FORMER])
def test_every_combination_of_sizes_is_the_same_job(noting, plugin):
    """Option by option, of what that executor takes: MPI with one of both numbers of tasks.

    The former version gave each GPU a task where a rule says nothing of tasks.
    """
    of_mpi = {"tasks", "tasks_per_node"}
    every = combinations().items()
    rules = {name: rule for name, rule in every if "mpi" not in rule[1] or len(of_mpi & rule[1].keys()) == 1}
    text = workflow(rules)
    other, asa = noting.other(text, *SENT, plugin=plugin), noting.asa(text, *SENT)
    for name, job in other.jobs.items() if plugin == FORMER else ():
        if {"tasks", "tasks_per_gpu"}.isdisjoint(rules[name][1]) and job.get("ntasks-per-gpu") == "1":
            del job["ntasks-per-gpu"]
    assert len(other.jobs) == 288, other.said[-3000:]
    assert asa.jobs.keys() == rules.keys()
    assert not {name: (rules[name], job, asa.jobs[name]) for name, job in other.jobs.items() if asa.jobs[name] != job}


LIMITS = {
    "max_runtime": [30, 90, "2h", "1-0", "1d12h"],
    "max_mem_mb": [1000, 4000, 64000],
    "max_mem_mb_per_cpu": [500, 2000],
    "max_cpus_per_task": [2, 8],
    "max_threads": [2, 4, 16],
    "max_nodes": [1, 4],
    "max_tasks": [2, 16],
    "max_tasks_per_node": [1, 4],
    "max_gpu": [1, 4],
    "available_gpu_models": [["a100"], ["v100", "a100"]],
    "max_cpus_per_gpu": [2, 8],
    "supports_mpi": [False, True],
    "available_constraints": [["fast"], ["fast", "large"]],
    "cluster": ["here"],
}
ASKED = {
    "runtime": [20, 60, 1000],
    "mem_mb": [800, 3000, 10000],
    "nodes": [1, 2],
    "tasks": [2, 8],
    "cpus_per_task": [1, 6],
    "gpu": [1, 2],
    "gpu_model": ["v100"],
    "cpus_per_gpu": [1, 4],
    "constraint": ["fast", "fast,large"],
    "cluster": ["here"],
    "threads": [3],
}


def drawn(choices, share, chance):
    return {name: chance.choice(values) for name, values in choices.items() if chance.random() < share}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_file_of_partitions_chooses_the_same_ones(noting, tmp_path, seed):
    """Where one fits; and else the default, which that executor names and asa leaves to Slurm."""
    chance = random.Random(seed)
    file, names = tmp_path / "partitions.yaml", [f"p{number}" for number in range(8)]
    file.write_text(json.dumps({"partitions": {name: drawn(LIMITS, 0.25, chance) for name in names}}))
    rules = {f"r{number}": (chance.choice((1, 1, 3)), drawn(ASKED, 0.2, chance)) for number in range(80)}
    text, how = workflow(rules), ("--slurm-partition-config", file, "--default-resources", "slurm_account=ours")
    other, asa = noting.other(text, *how), noting.asa(text, *how, partitions=":".join(["normal", *names]))
    assert len(other.jobs) == len(asa.jobs) == 80, (other.said, asa.said)
    chosen = {name: (job["partition"], asa.jobs[name].get("partition", "normal")) for name, job in other.jobs.items()}
    assert len({partition for partition, _ in chosen.values()}) > 4
    assert not {name: (rules[name], pair) for name, pair in chosen.items() if pair[0] != pair[1]}

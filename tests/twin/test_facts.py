"""Facts of a site from the output of Slurm's commands."""

import pytest
from asa.backends.simulated.policies import scheduler
from asa.backends.slurm.facts import read_facts, survey
from asa.backends.twin import gathering
from asa.backends.twin.gathering import gathered, script

from asa.errors import InputError, UnavailableError

CONFIG = """\
Configuration data as of 2026-11-26T10:00:00
ClusterName             = hill
PriorityDecayHalfLife   = 14-00:00:00
PriorityFavorSmall      = No
PriorityFlags           = {flags}
PriorityMaxAge          = 3-00:00:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 2000
PriorityWeightAssoc     = 0
PriorityWeightFairShare = 30000
PriorityWeightJobSize   = 500
PriorityWeightPartition = 100
PriorityWeightQOS       = 700
PriorityWeightTRES      = (null)
SchedulerParameters     = bf_continue,bf_interval=60,bf_max_job_test=200,bf_window=4320
SchedulerType           = sched/backfill
SelectType              = select/cons_tres
"""
PARTITION = (
    "PartitionName={name} AllowGroups=ALL AllowAccounts=ALL Default={default} MaxNodes=UNLIMITED MaxTime={time} "
    "Nodes=n[1-4] PriorityJobFactor={factor} PriorityTier={tier} OverSubscribe=NO State=UP TotalCPUs=8 TotalNodes=2\n"
)
NODE = "NodeName={name} Arch=x86_64 CPUAlloc=0 CPUTot={cores} RealMemory=64000 State=IDLE Partitions={of} Gres=(null)\n"
TEXTS = {
    "config.txt": CONFIG.format(flags="(null)"),
    "partitions.txt": "".join(
        PARTITION.format(name=name, default=default, time=time, factor=factor, tier=tier)
        for name, default, time, factor, tier in [
            ("gpu", "NO", "UNLIMITED", 1, 1), ("batch", "YES", "2-00:00:00", 5, 1), ("debug", "NO", "00:30:00", 10, 2)
        ]
    ),
    "nodes.txt": "".join(
        NODE.format(name=name, cores=cores, of=of)
        for name, cores, of in [("n1", 32, "batch,debug"), ("n2", 32, "batch"), ("g1", 64, "gpu")]
    ),
    "events.txt": "n1|1700000000|1700003600|DOWN*\nn2|1700000000|Unknown|DRAIN\n"
    "g1|1700000000|1700000001|IDLE\n|x|y|z\n",
}  # fmt: skip


def test_nodes_partitions_and_rules():
    facts = read_facts(TEXTS)
    assert facts.system == "hill"
    assert facts.pools == {"gpu": 64, "batch": 64}
    assert [(one.name, one.pool) for one in facts.partitions] == [
        ("batch", "batch"),
        ("gpu", "gpu"),
        ("debug", "batch"),
    ]
    assert [one.limits.max_walltime_s for one in facts.partitions] == [172_800.0, None, 1800.0]
    assert (facts.cores_per_node, facts.whole_nodes, facts.age_accrues) == (64, False, False)
    assert facts.scheduler == "multifactor"
    assert facts.settings == {
        "interval_s": "60", "depth": "200", "window_s": "259200", "resolution_s": "60", "age": "2000",
        "fair_share": "30000", "size": "500", "max_age_s": "259200", "half_life_s": "1209600", "favor_small": "no",
        "fair_tree": "yes", "users": "0", "period_s": "300",
    }  # fmt: skip
    scheduler(facts.scheduler, facts.settings)  # they can be read


@pytest.mark.parametrize(("flags", "tree"), [("SMALL_RELATIVE_TO_TIME", "yes"), ("NO_FAIR_TREE,ACCRUE_ALWAYS", "no")])
def test_who_shares_the_machine(flags, tree):
    facts = read_facts({**TEXTS, "config.txt": CONFIG.format(flags=flags), "users.txt": "1234\n"})
    assert (facts.settings["fair_tree"], facts.settings["users"]) == (tree, "1234")
    assert any("of 1234 users" in words for words in facts.seen)
    order = scheduler(facts.scheduler, facts.settings).order
    assert (order.fair_tree, order.users) == (tree == "yes", 1234)
    unknown = read_facts({**TEXTS, "users.txt": "sshare: error\n"})
    assert unknown.settings["users"] == "0"
    assert any("nobody shares the machine but" in words for words in unknown.assumed)


def test_a_higher_tier_outdoes_all_weights():
    points = {one.name: one.points for one in read_facts(TEXTS).partitions}
    assert points["batch"] - points["gpu"] == pytest.approx(100 * 0.4)
    assert points["debug"] > points["batch"] + 2000 + 30_000 + 500


def test_what_was_away():
    down, drained = read_facts(TEXTS).away
    assert (down.begin_s, down.end_s, down.cores, down.pool, down.is_drained) == (
        1.7e9,
        1.7e9 + 3600,
        32,
        "batch",
        False,
    )
    assert (drained.end_s, drained.is_drained) == (None, True)


def test_what_overlaps_of_a_node_is_one_and_saving_power_is_no_outage():
    lines = [
        "n1|1000|5000|DRAIN",
        "n1|2000|9000|DOWN*+DRAIN",
        "n1|20000|21000|IDLE+POWERED_DOWN",
        "n2|50|60|DOWN*+DRAIN",
    ]
    first, second = read_facts({**TEXTS, "events.txt": "\n".join(lines)}).away
    assert (first.begin_s, first.end_s, first.is_drained) == (50.0, 60.0, False)
    assert (second.begin_s, second.end_s, second.cores, second.is_drained) == (1000.0, 9000.0, 32, True)


def test_a_file_of_events_that_is_empty_tells_nothing():
    facts = read_facts({**TEXTS, "events.txt": ""})
    assert "no node was ever away: the events were not to be had" in facts.assumed


@pytest.mark.parametrize(
    ("config", "scheduler", "some"),
    [
        ("PriorityType = priority/basic\n", "multifactor", {"age": "0", "fair_share": "0"}),
        ("SchedulerType = sched/builtin\n", "fcfs", {}),
        ("PriorityType = priority/multifactor\nPriorityDecayHalfLife = 0\n", "multifactor",
         {"half_life_s": str(10 * 365 * 86_400), "depth": "500"}),
    ],
)  # fmt: skip
def test_other_rules(config, scheduler, some):
    facts = read_facts({**TEXTS, "config.txt": config})
    assert facts.scheduler == scheduler
    assert facts.settings.items() >= some.items()


def test_rules_of_age_and_of_nodes():
    accrues = {**TEXTS, "config.txt": CONFIG.format(flags="ACCRUE_ALWAYS").replace("select/cons_tres", "select/linear")}
    facts = read_facts(accrues)
    assert (facts.age_accrues, facts.whole_nodes) == (True, True)


def test_what_is_not_told_is_said_to_be_assumed():
    told = "\n".join(read_facts(TEXTS).assumed)
    for words in ("GPUs", "equal shares", "PriorityWeightQOS counts for nothing", "part of a group's nodes", "debug"):
        assert words in told
    bare = read_facts({name: TEXTS[name] for name in ("partitions.txt", "nodes.txt")})
    told = "\n".join(bare.assumed)
    for words in ("configuration was not to be had", "events were not to be had"):
        assert words in told
    assert bare.age_accrues is None
    assert not bare.knows_rules
    assert max(one.points for one in bare.partitions) > 20_000, "a tier outdoes whatever rules are fitted"


@pytest.mark.parametrize("name", ["nodes.txt", "partitions.txt"])
def test_nothing_can_be_made_of_nothing(name):
    with pytest.raises(InputError, match="tells of none") as told:
        read_facts({**TEXTS, name: "slurm_load_partitions error: Unable to contact slurm controller\n"})
    assert survey().commands[name] in told.value.hint


# ---------------------------------------------------------------------- getting it

HEAD = "Cluster|JobID|User|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|ReqCPUS|Reservation|Reason|AllocCPUS"
ROW = "hill|{i}|ann|batch|170000{i}|170000{i}|170001{i}|170002{i}|COMPLETED|60|3||None|4"
JOBS = "\n".join([HEAD, *(ROW.format(i=1000 + i) for i in range(20))])


@pytest.fixture
def folder(tmp_path):
    for name, text in {**TEXTS, "jobs.txt": JOBS}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_folder_is_read_and_a_part_of_it_too(folder):
    history, facts = gathered(folder)
    assert len(history) == 20
    assert facts.system == "hill"
    assert history.allocated.tolist() == [4] * 20
    (folder / "nodes.txt").unlink()
    assert gathered(folder)[1] is None
    assert gathered(folder / "jobs.txt")[1] is None


def commands(tmp_path, monkeypatch, **scripts):
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in scripts.items():
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.setattr(gathering.shutil, "which", lambda name: str(place / name) if (place / name).exists() else None)


def test_the_batch_system_here_is_asked(folder, tmp_path, monkeypatch):
    """What can be done without, such as its events, may be refused."""
    show = f"case $* in *config) cat {folder}/config.txt ;; *part*) cat {folder}/partitions.txt ;; esac"
    show += f"; case $* in *node*) cat {folder}/nodes.txt ;; esac"
    jobs = f'test "$LC_ALL" = C && cat {folder}/jobs.txt'
    commands(tmp_path, monkeypatch, scontrol=show, sacct=jobs, sacctmgr="exit 1")
    told = []
    history, facts = gathered(None, lambda *one: told.append(one))
    assert (len(history), facts.system) == (20, "hill")
    assert "no node was ever away: the events were not to be had" in facts.assumed
    assert told[-1] == ("asking the batch system", 6, 6)


def test_who_may_not_ask_is_told_what_was_said(tmp_path, monkeypatch):
    commands(tmp_path, monkeypatch, scontrol="echo 'Access denied' >&2; exit 1", sacct="exit 0")
    with pytest.raises(UnavailableError, match="Access denied"):
        gathered(None)


def test_commands_that_know_no_cluster_are_told_as_everywhere(tmp_path, monkeypatch):
    fatal = "scontrol: fatal: Could not establish a configuration source"
    commands(tmp_path, monkeypatch, scontrol=f"echo '{fatal}' >&2; exit 1", sacct="exit 0")
    with pytest.raises(UnavailableError) as caught:
        gathered(None)
    assert caught.value.message == "finds no configuration of Slurm on this computer"
    assert "SLURM_CONF" in caught.value.hint
    assert "--history" in caught.value.hint


def test_where_there_is_no_batch_system_that_is_said(tmp_path, monkeypatch):
    commands(tmp_path, monkeypatch)
    with pytest.raises(InputError, match="no batch system here"):
        gathered(None)
    assert "sacct -a" in script()

"""Twins of sites: their making, their agreement, and that they reveal nothing about anybody."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated.table import JobTable
from asa.backends.twin import Twin, TwinSite
from asa.backends.twin.agreement import agreement, by_width, misfit
from asa.backends.twin.making import _jobs, make_twin
from asa.backends.twin.queueing import simulated_waits
from golden.cases import DATA

from asa.backend import JobSpec, PartitionLimits
from asa.errors import InputError, SubmitRejectedError
from asa.facts import Away, PartitionFacts, SiteFacts
from asa.history import JobHistory, read_history

DAY = 86_400
ONE = (PartitionFacts("work", "work", PartitionLimits(DAY)),)


def history_of(jobs=3200, cores=64, seed=1, **facts):
    """Make the history of a site whose rules are known: its jobs queue in a twin, which tells their waits."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 60 * DAY, jobs))
    run = np.maximum(rng.lognormal(8.5, 1.0, jobs), 60).astype(int)
    width = np.minimum(2 ** rng.integers(0, 6, jobs), cores)
    history = JobHistory(
        submit_s=submit.astype(float),
        wait_s=np.zeros(jobs),
        cores=width.astype(np.int64),
        walltime_s=np.ceil(run * rng.uniform(1.0, 4.0, jobs)),
        started=np.ones(jobs, dtype=np.bool_),
        run_s=run.astype(float),
        user=rng.integers(0, 8, jobs).astype(np.int32),
        partition=np.zeros(jobs, dtype=np.int32),
        users=[f"name{i}" for i in range(8)],
        partitions=["work"],
        system="here",
        source="made",
    )
    rules = SiteFacts("here", {"work": cores}, ONE, 8, age_accrues=False, **facts)
    bare = make_twin(replace(history, wait_s=np.full(jobs, -1.0)), rules, seed=1).twin
    return replace(history, wait_s=simulated_waits(bare)), rules


@pytest.fixture(scope="module")
def known():
    return history_of(settings={"age": "1000", "fair_share": "0"})


def test_a_twin_by_the_sites_own_rules_waits_as_the_site_did(known):
    history, rules = known
    made = make_twin(history, rules, seed=3)
    assert made.left_out == {}
    for one in made.twin.about.agreement:
        assert one.within_2 == 1.0
        assert one.ks == 0.0
    assert {one.of.split()[0] for one in made.twin.about.agreement} > {"all", "the"}


def test_what_is_not_told_is_fitted(known):
    """The machine's size comes of the jobs, and the rules of the waits: as near as the site's own, nearly."""
    history, _ = known
    about = make_twin(history, seed=3).twin.about
    assert about.pools["all"] <= 64
    first = about.agreement[0]
    assert first.ks < 0.1
    assert 0.67 < first.ratio < 1.5
    told = "\n".join(about.assumed)
    for words in ("as many as were ever in use", "usual rules", "gain no priority", "one partition"):
        assert words in told


def test_cores_that_are_never_to_be_had_are_found():
    """A site that tells of 64 cores, and gives 48: waits say so."""
    history, rules = history_of(jobs=2200, cores=48, settings={"age": "1000", "fair_share": "0"})
    about = make_twin(history, replace(rules, pools={"work": 64}), seed=1).twin.about
    assert about.pools["work"] == pytest.approx(48, abs=2)
    assert "never to be had" in about.assumed[-1]
    assert about.agreement[0].ks < 0.1


def test_queues_with_cores_of_their_own_are_fitted_each_by_its_waits():
    """Of a log of three queues, of which one is crowded, nothing but the queues' names is known."""
    rng = np.random.default_rng(4)
    history, rules = history_of(jobs=1000)
    queue = rng.choice(3, len(history), p=(0.5, 0.3, 0.2)).astype(np.int32)
    names, sizes = ["long", "short", "quiet"], (28, 20, 32)
    partitions = tuple(PartitionFacts(name, name) for name in names)
    known = replace(rules, pools=dict(zip(names, sizes, strict=True)), partitions=partitions)
    cores = np.minimum(history.cores, 16)
    sent = replace(history, partition=queue, partitions=names, cores=cores, wait_s=np.full(len(history), -1.0))
    waited = replace(sent, wait_s=simulated_waits(make_twin(sent, known, seed=1).twin))
    twin = make_twin(waited, seed=1).twin
    about = twin.about
    assert list(about.pools) == sorted(
        names, key=lambda name: -(cores * history.run_s)[queue == names.index(name)].sum()
    )
    assert any("cores of its own" in words for words in about.assumed)
    of_queue = {one.of: one for one in about.agreement if one.of.startswith("queue ")}
    assert set(of_queue) == {f"queue {name}" for name in names}
    for one in of_queue.values():
        assert max(one.simulated_s[2], 600.0) / max(one.recorded_s[2], 600.0) == pytest.approx(1.0, abs=0.6)
    longest = max(of_queue.values(), key=lambda one: one.recorded_s[2])
    assert longest.recorded_s[2] > 3 * min(one.recorded_s[2] for one in of_queue.values())
    named = TwinSite(twin=twin).capabilities
    assert set(named.partitions) == set(names)
    assert named.partition == next(iter(about.pools))


def test_limits_of_queues_on_shared_nodes_are_fitted_each_by_its_waits():
    """Two of three queues may have a part of the nodes that all share; nothing but the queues' names is known."""
    rng = np.random.default_rng(5)
    history, rules = history_of(jobs=1500, cores=28)
    limits = {"long": 24, "short": 12, "quiet": None}
    names = list(limits)
    queue = rng.choice(3, len(history), p=(0.5, 0.3, 0.2)).astype(np.int32)
    partitions = tuple(PartitionFacts(name, "work", max_cores_in_use=most) for name, most in limits.items())
    cores = np.minimum(history.cores, 8)
    sent = replace(history, partition=queue, partitions=names, cores=cores, wait_s=np.full(len(history), -1.0))
    site = make_twin(sent, replace(rules, partitions=partitions), seed=1).twin
    waited = replace(sent, wait_s=simulated_waits(site))
    twin = make_twin(waited, seed=1).twin
    assert list(twin.about.pools) == ["all"]
    assert "at most a number of cores at a time: the nearest of 4 ways" in twin.about.assumed[-1]
    found = {partition.name: partition.max_cores_in_use for partition in twin.about.partitions}
    assert found["long"] == pytest.approx(24, abs=3)
    assert found["short"] == pytest.approx(12, abs=2)
    for one in twin.about.agreement:
        assert max(one.simulated_s[2], 600.0) / max(one.recorded_s[2], 600.0) == pytest.approx(1.0, abs=0.5)
    assert TwinSite(twin=twin).capabilities.partitions.keys() == set(names)


def test_jobs_of_a_limited_partition_wait_for_each_other_alone(tmp_path, known):
    """Nodes are idle, and a client's second job has to wait for its partition's first; jobs of another do not."""
    history, rules = known
    limited = (*ONE, PartitionFacts("debug", "work", max_cores_in_use=8))
    idle = replace(history, wait_s=np.full(len(history), -1.0))
    twin = make_twin(idle, replace(rules, pools={"work": 1000}, partitions=limited), seed=1).twin
    twin.write(tmp_path / "twin")
    assert Twin.read(tmp_path / "twin").about.partitions[1].max_cores_in_use == 8
    world = TwinSite(twin=tmp_path / "twin").open(1)
    asked = [JobSpec("x", cores, 600.0, run_s=300.0, partition=name) for name, cores in (("debug", 4), ("work", 8))]
    alone = [world.foresee_start(spec, world.now()) - world.now() for spec in asked]
    assert max(alone) <= 60.0
    world.submit(JobSpec("first", 8, 600.0, run_s=300.0, partition="debug"))
    later, beside = (world.foresee_start(spec, world.now()) - world.now() for spec in asked)
    assert later >= 300.0
    assert beside <= 60.0


def test_queues_of_one_machine_are_one_queue():
    """What jobs were called changes nothing, where that did not matter."""
    history, _ = history_of(jobs=800)
    queue = (np.arange(len(history)) % 3).astype(np.int32)
    named = replace(history, partition=queue, partitions=["a", "b", "c"])
    about = make_twin(named, seed=1).twin.about
    assert list(about.pools) == ["all"]
    assert len(about.partitions) == 1
    assert {one.of for one in about.agreement if one.of.startswith("queue ")} == {"queue a", "queue b", "queue c"}


def test_small_queues_count_as_one():
    history, _ = history_of(jobs=1200)
    queue = np.zeros(len(history), dtype=np.int32)
    queue[:400], queue[400:420], queue[420:440] = 1, 2, 3
    made = _jobs(replace(history, partition=queue, partitions=["a", "b", "c", "d"]), None, np.arange(9), [])[1]
    assert set(made.names[:2]) == {"a", "b"}
    assert made.names[2:] == ("others",)
    assert np.bincount(made.of)[2] == 40
    assert _jobs(history, None, np.arange(9), [])[1] is None


def test_a_folder_tells_no_names_and_comes_back_as_it_was(known, tmp_path):
    history, rules = known
    twin = make_twin(history, rules, you="name3", seed=5).twin
    twin.write(tmp_path / "t")
    for file in (tmp_path / "t").iterdir():
        assert b"name" not in file.read_bytes().replace(b'"name"', b"")
    again = Twin.read(tmp_path / "t")
    assert again.about == twin.about
    for column in ("submit", "run", "request", "cores"):
        assert (getattr(again.jobs.table, column) == getattr(twin.jobs.table, column)).all()
    assert (again.jobs.users == twin.jobs.users).all()
    assert (again.jobs.wait_s == twin.jobs.wait_s).all()
    mine = history.user == 3
    assert (twin.jobs.users == twin.about.you).sum() == mine.sum()


def test_a_node_that_is_still_away_and_who_may_use_a_partition_are_written_too(known, tmp_path):
    """The one comes back as it was; the other is nobody's business."""
    history, rules = known
    limits = replace(ONE[0].limits, accounts=("secret",), barred_accounts=("others",))
    partitions = (replace(ONE[0], limits=limits),)
    away = (Away(float(history.submit_s[-1]), None, 8, "work", is_drained=True),)
    twin = make_twin(history, replace(rules, partitions=partitions, away=away), seed=1).twin
    twin.write(tmp_path)
    text = (tmp_path / "twin.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)
    assert "secret" not in text
    assert "others" not in text
    assert Twin.read(tmp_path).about == twin.about
    assert TwinSite(twin=tmp_path).open(0).now() > 0


def test_numbers_of_users_are_drawn_anew_each_time(known):
    history, rules = known
    drawn = {tuple(make_twin(history, rules).twin.jobs.users[:30].tolist()) for _ in range(4)}
    assert len(drawn) > 1


def test_what_is_odd_is_counted_and_left_out(known):
    history, rules = known
    started, run, cores, partition = (
        getattr(history, name).copy() for name in ("started", "run_s", "cores", "partition")
    )
    started[:5], run[5:8], cores[8:10], partition[10:14], run[14:15] = False, 0.0, 65, 1, -1.0
    odd = replace(history, started=started, run_s=run, cores=cores, partition=partition, partitions=["work", "gone"])
    made = make_twin(odd, rules, seed=1)
    assert made.left_out == {
        "never started": 5,
        "ran for no time": 3,
        "wider than all nodes of their partition": 2,
        "of a partition that is not there any more": 4,
    }
    assert len(made.twin.jobs.table) == len(history) - 14
    assert any("1 jobs that still ran" in words for words in made.twin.about.assumed)


def test_too_little_makes_no_twin(known):
    history, rules = known
    with pytest.raises(InputError, match="tells of 99 jobs that ran"):
        make_twin(history.first(99), rules)


def test_without_ends_nobody_knows_how_busy_it_was(known):
    history, rules = known
    with pytest.raises(InputError, match="does not tell when jobs ended"):
        make_twin(replace(history, run_s=np.full(len(history), -1.0)), rules)


def test_what_the_reader_left_out_is_told(known):
    history, rules = known
    odd = replace(history, oddities={"left out: in a reservation": 7, "no limit of its own: 7 days taken": 3})
    assert make_twin(odd, rules, seed=1).left_out == {"in a reservation": 7}


def test_a_job_that_wants_more_than_what_is_left_gets_that():
    history, rules = history_of(jobs=2200, cores=48, settings={"age": "1000", "fair_share": "0"})
    site = TwinSite(twin=make_twin(history, replace(rules, pools={"work": 64}), seed=1).twin)
    world = site.open(0)
    assert world.foresee_start(JobSpec("x", 64, 600.0, run_s=60.0), world.now()) > world.now()


def test_cores_that_were_allocated_count(known):
    history, rules = known
    whole = replace(history, allocated=np.where(history.cores % 8, (history.cores // 8 + 1) * 8, history.cores))
    assert (make_twin(whole, rules, seed=1).twin.jobs.table.cores % 8 == 0).all()


# ---------------------------------------------------------------------- its site


def waits(site, spec, seeds=range(8)):
    return [world.foresee_start(spec, world.now()) - world.now() for world in map(site.open, seeds)]


def test_a_user_who_has_run_much_waits_longer_than_a_new_one():
    history, rules = history_of(settings={"age": "0", "fair_share": "100000", "half_life_s": str(30 * DAY)})
    heavy = np.bincount(history.user, weights=history.run_s * history.cores).argmax()
    twin = make_twin(history, rules, you=f"name{heavy}", seed=1).twin
    spec = JobSpec("x", 32, 7200.0, run_s=60.0)
    own, new, typical = (waits(TwinSite(twin=twin, user=user), spec) for user in ("", "new", "typical"))
    assert sum(new) < sum(own)
    assert sum(new) <= sum(typical) <= sum(own) * 1.5
    with pytest.raises(InputError, match="none of its users"):
        TwinSite(twin=twin, user="99")


@pytest.fixture(scope="module")
def split(known):
    """A site with two groups of nodes and three partitions, of which the small one is empty."""
    history, rules = known
    partitions = (
        *ONE,
        PartitionFacts("debug", "work", PartitionLimits(1800.0, max_cores=16), points=10_000.0),
        PartitionFacts("gpu", "gpu", PartitionLimits(DAY, max_cores=8)),
    )
    return make_twin(history, replace(rules, pools={"work": 64, "gpu": 8}, partitions=partitions), seed=1).twin


def test_each_partition_has_its_nodes_its_limits_and_its_priority(split):
    site = TwinSite(twin=split)
    assert site.capabilities.partition == "work"
    short = {"cores": 8, "walltime_s": 600.0, "run_s": 60.0}
    work, debug, gpu = (waits(site, JobSpec("x", partition=name, **short)) for name in ("", "debug", "gpu"))
    assert max(gpu) <= 60.0
    assert sum(debug) < sum(work)
    world = site.open(0)
    for spec, words in [
        (JobSpec("x", 8, 3600.0, run_s=1.0, partition="debug"), "at most 30m00s"),
        (JobSpec("x", 16, 600.0, run_s=1.0, partition="gpu"), "asks for 16 cores"),
        (JobSpec("x", 8, 600.0, run_s=1.0, partition="other"), "which does not exist"),
    ]:
        with pytest.raises(SubmitRejectedError, match=words):
            world.submit(spec)
    assert TwinSite(twin=split, partition="gpu").capabilities.partition == "gpu"
    with pytest.raises(InputError, match="there is no partition"):
        TwinSite(twin=split, partition="other")


def test_what_was_away_is_away_in_the_twin(known):
    history, rules = known
    clock = float(history.submit_s[0])
    away = (Away(clock + 20 * DAY, clock + 25 * DAY, 48, "work"), Away(clock - 5 * DAY, clock - 4 * DAY, 64, "work"))
    bare = make_twin(replace(history, wait_s=np.full(len(history), -1.0)), rules, seed=1).twin
    gone = make_twin(replace(history, wait_s=np.full(len(history), -1.0)), replace(rules, away=away), seed=1).twin
    submit = bare.jobs.table.submit
    meanwhile = (submit > 20 * DAY) & (submit < 25 * DAY)
    assert simulated_waits(gone)[meanwhile].mean() > 2 * simulated_waits(bare)[meanwhile].mean() + 3600


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "made of a site's own jobs"),
        ({"system": "hpc2n"}, "made of a site's own jobs"),
        ({"twin": "nowhere"}, "is no twin"),
    ],
)
def test_what_is_no_twin_is_refused(settings, words, tmp_path):
    with pytest.raises(InputError, match=words):
        TwinSite(**settings)


def test_a_damaged_folder_is_refused(known, tmp_path):
    history, rules = known
    make_twin(history, rules, seed=1).twin.write(tmp_path)
    text = (tmp_path / "twin.json").read_text()
    for broken in ("{}", text[: len(text) // 2], re.sub('"asa_twin": 1', '"asa_twin": 2', text)):
        (tmp_path / "twin.json").write_text(broken)
        with pytest.raises(InputError, match="no twin that this version reads"):
            Twin.read(tmp_path)
    about = json.loads(text)
    about["partitions"] = []
    (tmp_path / "twin.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="no twin"):
        TwinSite(twin=tmp_path)


def test_a_public_log_makes_one():
    twin = make_twin(read_history(DATA / "small.swf.gz"), seed=1).twin
    assert twin.about.agreement[0].jobs > 100
    world = TwinSite(twin=twin).open(0)
    assert world.capabilities.max_cores >= 8


# ---------------------------------------------------------------------- how well waits agree


def test_agreement_by_hand():
    found = agreement("x", np.array([0.0, 100.0, 1000.0, 4000.0]), np.array([59.0, 199.0, 2001.0, 4000.0]))
    assert found.within_2 == 0.75
    assert found.ks == 0.25
    assert found.recorded_s == pytest.approx((550.0, 1750.0, 3100.0))
    assert agreement("x", np.array([0.0]), np.array([10.0])).ratio == 1.0


def test_a_misfit_is_of_quantiles_width_by_width():
    cores = np.repeat([1, 8], 100)
    waits_s = np.concatenate([np.full(100, 100.0), np.full(100, 1000.0)])
    assert misfit(cores, waits_s, waits_s) == 0.0
    assert misfit(cores, waits_s, waits_s * 10) == pytest.approx(1.0)
    assert misfit(cores, waits_s, np.where(cores == 8, 10 * waits_s, waits_s)) == pytest.approx(0.5)
    assert misfit(cores, waits_s, np.random.default_rng(1).permutation(waits_s)) > 0.3


@pytest.mark.parametrize("cores", [[], [1] * 5, [1] * 40, list(range(1, 101)), [4] * 50 + [128] * 50])
def test_each_job_is_in_one_class_of_width_at_most(cores):
    found = list(by_width(np.array(cores, dtype=np.int64)))
    assert sum(which for _, which in found).max(initial=0) <= 1 if found else True
    assert len({words for words, _ in found}) == len(found)
    if len(cores) >= 40:
        assert sum(which.sum() for _, which in found) == len(cores)


def test_the_jobs_of_a_twin_are_in_order(known):
    history, rules = known
    table = make_twin(history, rules, seed=1).twin.jobs.table
    assert isinstance(table, JobTable)
    assert (np.diff(table.submit) >= 0).all()


# ---------------------------------------------------------------------- where only one's own jobs are shown


def only(history, user):
    return history.where(history.user == user)


def test_of_ones_own_jobs_others_are_made_as_heavy_as_the_waits_say(known):
    history, rules = known
    own = only(history, 3)
    made = make_twin(own, rules, you="name3", seed=1)
    about, jobs = made.twin.about, made.twin.jobs
    mine = jobs.users == about.you
    assert mine.sum() == len(own)
    assert (jobs.wait_s[mine] == np.round(own.wait_s)).all()
    assert (jobs.wait_s[~mine] == -1).all()
    assert (~mine).sum() > 1000
    assert about.agreement[0].jobs <= len(own)
    assert 0.2 < about.agreement[0].ratio < 5.0
    assert "only a part of the jobs is shown" in about.assumed[-1]
    light = make_twin(replace(own, wait_s=np.zeros(len(own))), rules, seed=1).twin.about
    assert load_of(light) < load_of(about)


def load_of(about):
    return int(re.search(r"(\d+) % of what the machine", about.assumed[-1])[1])


def test_a_few_users_of_many_are_seen_to_be_a_part(known):
    """Their jobs waited for hours on a machine that they alone leave idle."""
    history, rules = known
    few = history.where(history.user < 2)
    about = make_twin(replace(few, wait_s=few.wait_s + 7200.0), rules, seed=1).twin.about
    assert "only a part of the jobs is shown" in about.assumed[-1]
    assert about.agreement[0].simulated_s[2] > 600


def test_others_are_put_where_ones_own_jobs_are(known):
    history, rules = known
    partitions = (*ONE, PartitionFacts("large", "large"))
    two = replace(rules, pools={"work": 64, "large": 640}, partitions=partitions)
    twin = make_twin(only(history, 3), two, seed=1).twin
    assert set(twin.jobs.partitions.tolist()) == {0}
    assert twin.about.agreement[0].ratio > 0.2


def test_of_ones_own_jobs_the_machine_must_be_known(known):
    history, rules = known
    own = only(history, 3)
    with pytest.raises(InputError, match="not how large the machine is"):
        make_twin(own)
    with pytest.raises(InputError, match="by which nobody can tell"):
        make_twin(replace(own, wait_s=np.full(len(own), -1.0)), rules)

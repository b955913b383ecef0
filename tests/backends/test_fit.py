"""Workload models fitted to logs: a known model is recovered."""

import json
from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated.fit import MARGINALS, distances, fit, halves, marginals, offered_load
from asa.backends.simulated.fitted import FittedSpread, place_of_run, run_at_place
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.model_file import load_model, save_model
from asa.backends.simulated.swf import read_swf, write_swf
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import WorkloadModel
from forked import asa
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError, TraceError

DAY, WEEK = 86400, 7 * 86400
MONDAY = 4 * DAY
SMALL = WorkloadModel(Machine("small", 16, 16), load=0.6, log2_middle=3.0, log2_widest=7.0, burst=2.0, weekend=0.5)


def trace_of(folder, table, cores=256, **columns):
    path = folder / "made.swf"
    write_swf(path, table, cores=cores, unix_start_s=MONDAY, **columns)
    return read_swf(path, exceed="kill")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a log of ten weeks from another kind of model."""
    return trace_of(tmp_path_factory.mktemp("made"), SMALL.generate(10 * WEEK, 1))


@pytest.fixture(scope="module")
def model(made):
    return fit(made)


def columns(table):
    return np.stack([table.submit, table.run, table.request, table.cores])


def test_a_sample_is_like_the_log(made, model):
    """In every marginal distribution, and in its load, though the log's model has distributions that ours lacks."""
    span = int(made.table.submit[-1] - made.table.submit[0])
    values = marginals(made.table, clock_s=made.clock_s)
    assert tuple(values) == MARGINALS
    for seed in (0, 1):
        sample = model.generate(span, seed)
        for name, distance in distances(values, marginals(sample)).items():
            assert distance < 0.05, name
        assert len(sample) == pytest.approx(len(made.table), rel=0.1)
    loads = [offered_load(model.generate(span, seed), made.cores, span) for seed in range(6)]
    assert np.mean(loads) == pytest.approx(offered_load(made.table, made.cores), rel=0.04)
    assert model.jobs_per_day() == pytest.approx(len(made.table) / (span / DAY), rel=0.1)


def test_the_same_seed_gives_the_same_jobs(made, model):
    """The same log gives the same model."""
    assert fit(made) == model
    one, same, other = (columns(model.generate(WEEK, seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert one.shape != other.shape or not np.array_equal(one, other)


def test_jobs_are_possible(model):
    """They are in order, within the duration and the machine, and never exceed their requests."""
    for duration in (1, 3600, 3 * DAY + 77, 4 * WEEK):
        table = model.generate(duration, 3)
        if len(table):
            assert table.submit[0] >= 0
            assert table.submit[-1] < duration
            assert np.all(np.diff(table.submit) >= 0)
            assert table.cores.max() <= 256
            assert np.all(table.run <= table.request)
    assert len(model.generate(0, 1)) == 0


@pytest.mark.parametrize("load", [0.2, 0.9, 1.5])
def test_another_load_is_met(model, load):
    """On average over seeds; jobs keep their sizes and run times."""
    busy = replace(model, load=load)
    samples = [busy.generate(8 * WEEK, seed) for seed in range(6)]
    assert np.mean([len(sample) for sample in samples]) == pytest.approx(busy.jobs_per_day() * 56, rel=0.03)
    assert np.mean([offered_load(sample, 256, 8 * WEEK) for sample in samples]) == pytest.approx(load, rel=0.1)
    near = distances(marginals(model.generate(8 * WEEK, 0)), marginals(samples[0]))
    assert max(near[name] for name in ("cores", "run time", "requested time", "run / request")) < 0.05


@pytest.mark.parametrize("load", [0.0, -1.0, 1e9, float("nan")])
def test_senseless_loads_are_refused(model, load):
    """The error has the limits."""
    with pytest.raises(InputError, match="outside 0 to 100"):
        replace(model, load=load)


def test_hours_and_weekdays_come_back(tmp_path):
    """A log of office hours gives a model of office hours."""
    rng = np.random.default_rng(1)
    day = rng.choice([0, 1, 2, 3, 4], 6000) + 7 * rng.integers(0, 12, 6000)
    submit = np.sort(DAY * day + rng.integers(9 * 3600, 17 * 3600, 6000))
    run = rng.integers(60, 3600, 6000)
    trace = trace_of(tmp_path, JobTable(submit, run, np.full(6000, 3600), rng.integers(1, 9, 6000)))
    told = fit(trace).summary()
    assert 9 <= told["busiest_hour"] < 17
    assert told["weekend"] < 0.1
    sample = fit(trace).generate(12 * WEEK, 1).submit
    hour, weekday = sample // 3600 % 24, sample // DAY % 7
    assert np.mean((hour >= 9) & (hour < 17)) > 0.9
    assert np.mean(weekday < 5) > 0.95


def test_busy_weeks_come_back(tmp_path):
    """Quiet and busy months: counts of weeks vary, and neighbours are alike."""
    rng = np.random.default_rng(2)
    weeks = np.repeat(np.tile([150, 1050], 4), 4)
    submit = np.sort(np.concatenate([w * WEEK + rng.integers(0, WEEK, n) for w, n in enumerate(weeks)]))
    n = len(submit)
    model = fit(trace_of(tmp_path, JobTable(submit, np.full(n, 300), np.full(n, 600), rng.integers(1, 9, n))))
    assert model.levels[0] < 0.4
    assert model.levels[-1] > 1.6
    assert model.level_memory > 0.3
    counts = np.bincount(model.generate(40 * WEEK, 5).submit // WEEK)
    assert counts.std() > 0.4 * counts.mean()


def test_campaigns_come_back(tmp_path):
    """Ten jobs of one user, a second apart: the model has their number, their gaps, and their similar run times."""
    rng = np.random.default_rng(3)
    first = np.sort(rng.integers(0, 8 * WEEK, 500))
    first += 1000 * np.arange(500)  # no two at a time
    submit = (first[:, None] + np.arange(10)).ravel()
    run = np.repeat(rng.integers(100, 50_000, 500), 10)
    users = np.repeat(rng.integers(0, 9, 500), 10)
    cores = np.repeat(rng.choice([1, 2, 4, 8], 500), 10)
    trace = trace_of(tmp_path, JobTable(submit, run, np.full(5000, 86400), cores), users=users)
    model = fit(trace)
    assert all(9 < row["jobs_a_campaign"] < 16 for row in model.summary()["widths"])
    assert model.alike > 0.9
    sample = model.generate(8 * WEEK, 1)
    gaps = np.diff(sample.submit)
    assert np.mean(gaps == 1) == pytest.approx(0.9, abs=0.03)
    together = gaps == 1
    near = np.abs(np.log(sample.run[1:] / sample.run[:-1]))
    assert np.median(near[together]) < 0.5 * np.median(near[~together])


def test_a_log_without_requests(tmp_path):
    """Then only run times are known, and all jobs run for their whole walltime."""
    table = SMALL.generate(4 * WEEK, 2)
    lines = [f"{i} {s} -1 {r} {c} -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n"
             for i, (s, r, _, c) in enumerate(columns(table).T.tolist())]  # fmt: skip
    path = tmp_path / "bare.swf"
    path.write_text("; MaxProcs: 256\n" + "".join(lines))
    trace = read_swf(path)
    sample = fit(trace).generate(4 * WEEK, 1)
    assert np.array_equal(sample.run, sample.request)
    assert distances(marginals(trace.table), marginals(sample))["run time"] < 0.05


@pytest.mark.parametrize("change", [{"run": 1}, {"request": 600}, {"request": 1}, {"cores": 1}, {"cores": 256}])
def test_logs_in_which_something_never_varies(tmp_path, change):
    """All a second long, all of one request, all serial, all as wide as the machine."""
    table = SMALL.generate(2 * WEEK, 4)
    values = {key: getattr(table, key) for key in ("submit", "run", "request", "cores")}
    for key, value in change.items():
        values[key] = np.full(len(table), value)
    trace = trace_of(tmp_path, JobTable(**values))
    sample = fit(trace).generate(2 * WEEK, 1)
    for key in change:
        assert (
            distances({key: getattr(trace.table, key).astype(float)}, {key: getattr(sample, key).astype(float)})[key]
            < 0.05
        )


@pytest.mark.parametrize("moments", [np.arange(99) * 100, np.zeros(500, dtype=int), np.arange(500)])
def test_too_small_logs_are_refused(tmp_path, moments):
    """Few jobs, one moment, a few minutes."""
    n = len(moments)
    trace = trace_of(tmp_path, JobTable(moments, np.full(n, 60), np.full(n, 600), np.arange(n) % 7 + 1))
    with pytest.raises(TraceError, match="too few to fit"):
        fit(trace)


def test_distances_by_hand():
    """Ties are steps of both at once."""
    assert distances({"x": np.array([1.0, 2.0, 3.0])}, {"x": np.array([1.0, 2.0, 3.0, 3.0])}) == {
        "x": pytest.approx(1 / 6)
    }
    assert distances({"x": np.zeros(3)}, {"x": np.ones(5)}) == {"x": 1.0}


VALUES = st.lists(st.integers(0, 9), min_size=1, max_size=30).map(lambda xs: np.array(xs, dtype=float))


@given(VALUES, VALUES)
def test_distances_are_what_they_are_defined_as(a, b):
    """The largest difference of the two distribution functions; symmetric, and 0 for equal samples."""
    expected = max(abs(np.mean(a <= x) - np.mean(b <= x)) for x in range(10))
    assert distances({"x": a}, {"x": b})["x"] == pytest.approx(expected)
    assert distances({"x": b}, {"x": a})["x"] == pytest.approx(expected)
    assert distances({"x": a}, {"x": a})["x"] == 0


def test_marginals_by_hand():
    """Three jobs; the clock showed 23:00 at second 0."""
    table = JobTable(*(np.array(c) for c in ([0, 60, 7200], [10, 100, 50], [100, 100, 100], [1, 2, 4])))
    found = {name: values.tolist() for name, values in marginals(table, clock_s=23 * 3600).items()}
    assert found == {
        "inter-arrival time": [0, 60, 7140],
        "hour of the day": [23, pytest.approx(23 + 1 / 60), 1],
        "cores": [1, 2, 4],
        "run time": [10, 100, 50],
        "requested time": [100, 100, 100],
        "run / request": [0.1, 1, 0.5],
        "work": [10, 200, 200],
    }


def test_halves_tell_odd_from_even_weeks(tmp_path):
    """Weeks count from Mondays by the log's clock; a log of one week has no halves."""
    submit = np.arange(0, 4 * WEEK, 600)
    n = len(submit)
    cores = np.where(submit // WEEK % 2 == 0, 1, 8)
    trace = trace_of(tmp_path, JobTable(submit, np.full(n, 60), np.full(n, 600), cores))
    found = halves(trace)
    assert found["cores"] == 1.0
    assert found["run time"] == 0.0
    assert halves(trace_of(tmp_path, JobTable(np.arange(9), np.ones(9), np.ones(9), np.ones(9)))) is None


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200), st.integers(0, 9))
def test_a_spread_keeps_what_it_is_of(values, seed):
    """Frequent values keep their shares, others their range; its mean is that of its draws."""
    values = np.array(values + [7] * len(values))
    spread = FittedSpread.of(values)
    drawn = spread.draw(np.random.default_rng(seed), 20_000)
    for value, share in spread.popular:
        assert share == pytest.approx(np.mean(values == value), abs=1e-3)
    assert np.mean(drawn == 7) == pytest.approx(0.5 + np.mean(values == 7) / 2 - 0.25, abs=0.3)
    assert drawn.min() >= values.min() - 1e-6 * values.max()
    assert drawn.max() <= values.max() * (1 + 1e-4)
    assert drawn.mean() == pytest.approx(spread.mean(), rel=0.1)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=50))
def test_a_runs_place_gives_it_back(pairs):
    """Short or long, whatever the request."""
    request = np.array([max(pair) for pair in pairs])
    run = np.array([min(pair) for pair in pairs])
    place = place_of_run(run, request)
    assert np.all((place >= -1) & (place <= 1 + 1e-12))
    assert run_at_place(place, request.astype(float)).tolist() == run.tolist()


def test_a_model_is_kept_as_json(model, tmp_path):
    """Readable, and the same when it is read again."""
    save_model(model, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json") == model
    text = (tmp_path / "model.json").read_text()
    assert json.loads(text)["version"] == 1
    assert '"alike": ' in text
    assert len(text.splitlines()) < 1000
    with pytest.raises(InputError, match="cannot be written"):
        save_model(model, tmp_path / "none" / "model.json")


def put(data, path, value):
    *way, last = path
    for step in way:
        data = data[step]
    if value is None:
        del data[last]
    else:
        data[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "version: is 2; this program reads 1"),
        (("format",), "else", "is no workload model"),
        (("load",), "much", "load: is 'much'; input should be a valid number"),
        (("load",), True, "load: is True"),
        (("load",), 0, "load: is 0; input should be greater"),
        (("load",), float("nan"), "load: is nan"),
        (("machine", "nodes"), 0, r"machine.nodes: is 0; input should be greater"),
        (("machine", "nodes"), 2.5, r"machine.nodes: is 2.5; input should be a valid integer"),
        (("machine", "name"), 7, r"machine.name: is 7; input should be a valid string"),
        (("machine", "whole_nodes"), 1, r"machine.whole_nodes: is 1; input should be a valid boolean"),
        (("machine", "racks"), 1, r"(?s)machine.racks: is not a field.*: name, nodes, cores_per_node, whole_nodes\."),
        (("comment",), "mine", r"(?s)comment: is not a field.*: format, version, machine, source"),
        (("kinds", 0, "memory"), 1, r"(?s)kinds\[0\].memory: is not a field.*: most_cores, most_request_s"),
        (("kinds", 0, "cores", "mean"), 1, r"(?s)kinds\[0\].cores.mean: is not a field.*: popular, rest\."),
        (("hours",), [1.0] * 24, "hours: has 24 entries and must have at least 168"),
        (("hours",), [1.0] * 169, "hours: has 169 entries and must have at most 168"),
        (("hours",), 1.0, "hours: is no list"),
        (("hours",), [0.0] * 168, "hours: has no number above 0"),
        (("hours", 5), -1, r"hours\[5\]: is -1"),
        (("levels",), [1.0, 0.5], "levels: is not ascending"),
        (("levels",), [], "levels: has no number above 0"),
        (("level_memory",), 2, "level_memory: is 2"),
        (("gap_s", "rest"), [], "gap_s: has no value above 0"),
        (("gap_s", "rest"), [3.0], "gap_s.rest: has 1 quantile "),
        (("follow_s",), [], "follow_s: has 0 entries and must have at least 3"),
        (("follow_s", 1), {"popular": [[3, 0.0]], "rest": []}, r"follow_s\[1\]: has popular values of no share"),
        (("alike",), None, "alike: is missing\nAdd it"),
        (("kinds",), [], "kinds: has 0 entries and must have at least 1"),
        (("kinds", 0, "share"), 1.5, r"kinds\[0\].share: is 1.5"),
        (("kinds", 0, "campaigns"), [0.0], r"kinds\[0\].campaigns: has no number above 0"),
        (("kinds", 0, "cores", "popular"), [[1]], r"kinds\[0\].cores.popular\[0\]\[1\]: is missing"),
        (("kinds", 0, "cores", "popular"), [[1, 0.5, 2]], r"kinds\[0\].cores.popular\[0\]: has 3 entries"),
        (("kinds", 0, "cores", "popular"), [1], r"kinds\[0\].cores.popular\[0\]: is no list"),
        (("kinds", 0, "cores", "popular"), [[1, 0.7], [2, 0.7]], r"kinds\[0\].cores.popular: has shares of more"),
        (("kinds", 0, "request_s", "popular"), [[0, 0.7]], r"kinds\[0\].request_s.popular\[0\]\[0\]: is 0"),
        (("kinds", 0, "request_s"), {"popular": [], "rest": []}, r"kinds\[0\].request_s: has no value"),
        (("kinds", 0, "run_place"), [-2.0, 0.0], r"kinds\[0\].run_place\[0\]: is -2"),
        (("kinds", 0), [], r"kinds\[0\]: is no object"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(model, tmp_path, path, value, message):
    """The error names file and field."""
    file = tmp_path / "model.json"
    save_model(model, file)
    data = json.loads(file.read_text())
    put(data, path, value)
    file.write_text(json.dumps(data))
    with pytest.raises(InputError, match=message) as caught:
        load_model(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_what_is_no_model_is_refused(tmp_path):
    """No file, no JSON, no object, an object of another kind."""
    file = tmp_path / "model.json"
    with pytest.raises(InputError, match="cannot be read"):
        load_model(file)
    for text, message in (
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("\udcff", "is no JSON"),
        ("[1]", "is no workload model"),
        ("{}", "(?s)is no workload model.*asa workload fit"),
    ):
        file.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(InputError, match=message):
            load_model(file)


def run(*arguments, code=0):
    return asa("workload", *arguments, code=code)


def test_fit_and_generate_on_the_command_line(made, tmp_path):
    """A model from a log, a log from the model, the same log again from the same seed."""
    model = tmp_path / "model.json"
    text = run("fit", made.path, "--out", model).stdout
    for words in (*MARGINALS, "Log's odd to even weeks", "what was fitted", "serial", "load 0.", "numbers"):
        assert words in text
    told = json.loads(run("fit", made.path, "--output", "json", "--seed", 3).stdout)
    assert set(told["distances"]) == set(MARGINALS)
    assert told["jobs"]["log"] == len(made.table)
    assert told["load"]["sample"] == pytest.approx(told["load"]["log"], rel=0.15)
    drawn = [tmp_path / "one.swf.gz", tmp_path / "two.swf.gz"]
    for path in drawn:
        assert "21 days" in run("generate", model, "--days", 21, "--load", 0.9, "--seed", 1, "--out", path).stdout
    assert drawn[0].read_bytes() == drawn[1].read_bytes()
    trace = read_swf(drawn[0])
    assert (trace.cores, trace.clock_s % WEEK, trace.oddities) == (256, MONDAY % WEEK, {})
    expected = replace(load_model(model), load=0.9).generate(21 * DAY, 1)
    assert np.array_equal(columns(trace.table), columns(expected))


def test_presets_are_written_too(tmp_path):
    """The model of a centre is written by its name."""
    path = tmp_path / "centre.swf"
    run("generate", "uppmax", "--days", 2, "--seed", 4, "--load", 0.5, "--out", path)
    trace = read_swf(path)
    assert trace.cores == 486 * 20
    assert len(trace.table) > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "none.swf"], "none.swf: cannot be read"),
        (["fit", "SHORT"], "too few to fit"),
        (["generate", "hpc2", "OPTIONS"], "Did you mean 'hpc2n'"),
        (["generate", "none.json", "OPTIONS"], "none.json: cannot be read"),
        (["generate", "SHORT", "OPTIONS"], "is no JSON"),
        (["generate", "hpc2n", "OPTIONS", "--load", "3"], "load = 3.0 is outside"),
        (["generate", "hpc2n", "--days", "1", "--seed", "1", "--out", "/no/such/folder/x.swf"], "cannot be written"),
    ],
)
def test_bad_input_is_refused(tmp_path, arguments, message):
    """Exit code 2, and what to do."""
    short = tmp_path / "short.swf"
    short.write_text("; MaxProcs: 4\n1 0 -1 60 4 -1 -1 4 600\n")
    given_as = {"SHORT": [str(short)], "OPTIONS": ["--days", "1", "--seed", "1", "--out", str(tmp_path / "x.swf")]}
    whole = [word for argument in arguments for word in given_as.get(argument, [argument])]
    assert message in run(*whole, code=2).stderr
    assert not (tmp_path / "x.swf").exists()


@pytest.mark.data
@pytest.mark.parametrize("name", ["CTC-SP2-1996-3.1-cln", "HPC2N-2002-2.2-cln", "KTH-SP2-1996-2-unfiltered"])
def test_a_sample_is_nearer_to_a_real_log_than_its_halves_are_to_each_other(data, name):
    """By far, on average over the marginal distributions; and it has the log's load."""
    trace = read_swf(data / "swf" / f"{name}.swf.gz", exceed="kill")
    model = fit(trace)
    span = int(trace.table.submit[-1] - trace.table.submit[0])
    samples = [model.generate(span, seed) for seed in (0, 1)]
    values = marginals(trace.table, clock_s=trace.clock_s)
    near = [distances(values, marginals(sample)) for sample in samples]
    assert max(max(found.values()) for found in near) < 0.04
    assert np.mean([list(found.values()) for found in near]) < 0.6 * np.mean(list(halves(trace).values()))
    loads = [offered_load(sample, trace.cores, span) for sample in samples]
    assert np.mean(loads) == pytest.approx(model.load, rel=0.05)


@pytest.mark.data
@pytest.mark.parametrize("name", ["theta_2022", "DOST-ASTI_COARE-Saliksik-2020-cln", "lublin_256"])
def test_other_real_logs_can_be_fitted(data, name):
    """Without users, in another order, without requests."""
    trace = read_swf(data / "swf" / f"{name}.swf.gz", exceed="kill")
    span = int(trace.table.submit[-1] - trace.table.submit[0])
    near = distances(marginals(trace.table, clock_s=trace.clock_s), marginals(fit(trace).generate(span, 0)))
    assert max(near.values()) < 0.05

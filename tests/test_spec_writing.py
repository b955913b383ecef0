"""Workflows as TOML text that reads back equal."""

import string
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asa.continuation import Continuation
from asa.elements import Array, Elements
from asa.errors import InputError, WorkflowError
from asa.preparation import Preparation
from asa.shapes import Moldable, RunAt, Scaling, run_time_at
from asa.spec import load_workflow, write_workflow
from asa.workflow import LONGEST_WALLTIME_S, Stage, Workflow

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40)
BRACES = st.sampled_from(
    ["{{degree}}", "{{{x}}", "{{ open }}", "a{{b}}c\n{{d}}", "docker --format '{{.Names}}'", "\r\n\t'''\"\"\"\\"]
)
SHELL = st.one_of(TEXT, BRACES, st.builds("{}\n{}".format, TEXT, BRACES))
SOME = SHELL.filter(bool)
LINE = SOME.filter(lambda text: text.strip() and "\n" not in text)
SCRIPT = st.builds("#!{}\n{}".format, st.sampled_from(["/bin/sh", "/usr/bin/env python3"]), SHELL)
SECONDS = st.one_of(st.integers(1, 86400 * 30).map(float), st.floats(1e-6, 86400, allow_subnormal=False))
VARIABLES = st.dictionaries(st.text(string.ascii_letters + "_", min_size=1, max_size=8), TEXT, max_size=3)
PAYLOAD = st.one_of(
    st.builds(lambda text: {"command": text}, SHELL),
    st.builds(lambda text: {"script": text}, SCRIPT),
    st.builds(lambda texts: {"tasks": tuple(texts)}, st.lists(LINE, min_size=1, max_size=4)),
    st.builds(lambda text: {"tasks_file": text}, SOME),
)


PATHS = LINE.filter(lambda text: "\r" not in text)
LAWS = st.sampled_from([
    Scaling(), Scaling("amdahl"), Scaling("amdahl", parallel=0.5), Scaling("downey"),
    Scaling("downey", parallelism=60.0, variance=0.25), Scaling("tasks"),
])  # fmt: skip


@st.composite
def moldables(draw, stage):
    """The stage, and other shapes in which it may be asked for, as a file can say them."""
    each = stage.cpus_per_task if stage.nodes is None else 1
    widths = draw(st.lists(st.integers(1, 99).map(lambda width: width * each), max_size=4))
    widths = tuple(sorted({*widths, stage.width})) if widths else ()
    partitions = tuple(dict.fromkeys([stage.partition, *draw(st.lists(TEXT, max_size=2))]))
    partitions = partitions if len(partitions) > 1 and all(partitions) else ()  # each of several has a name
    if len(widths) < 2 and not partitions:
        return stage
    if len(widths) < 2:
        widths = ()
    law = draw(LAWS)
    if law.law == "tasks" and stage.nodes is None:
        law = Scaling("tasks", tasks=len(stage.tasks), per_task=stage.cpus_per_task)
    known = draw(st.dictionaries(st.sampled_from(widths or (stage.width,)), SECONDS, max_size=3))
    points = tuple(RunAt(width, run_s) for width, run_s in sorted(known.items()))
    own = run_time_at(stage.width, points, law)
    # enough for most of what a law makes of these times
    asked = draw(st.sampled_from([(), tuple((width, 86400.0 * 30) for width in widths)]))
    if own is None or own.run_s > stage.walltime_s:
        points, expected_s = (), stage.expected_run_s
    else:
        expected_s = own.run_s
    if not points and law.law == "tasks" and not (stage.tasks or stage.tasks_file):
        law = Scaling()
    try:
        return replace(
            stage,
            expected_run_s=expected_s,
            walltime_s=86400.0 * 30 if asked else stage.walltime_s,
            moldable=Moldable(widths, points, law, asked, partitions),
        )
    except WorkflowError:  # at some width it would be killed
        return stage


@st.composite
def legs(draw, walltime_s):
    warned = draw(st.booleans())
    return Continuation(
        max_legs=draw(st.integers(1, 10_000)),
        warn=draw(st.sampled_from(["USR1", "TERM"])) if warned else "",
        warn_s=min(walltime_s / 4, 86400.0) if warned else 0.0,
        unfinished=draw(st.integers(1, 125)),
        progress=tuple(draw(st.lists(PATHS, max_size=2))),
    )


WORDS = st.text(st.characters(blacklist_characters="\0\n\r:,", blacklist_categories=["Cs"]), min_size=1).map(
    lambda text: f"x{text.strip()}"
)


@st.composite
def preparations(draw, *, launches):
    container = draw(st.one_of(st.just(""), WORDS))
    made = Preparation(
        modules=tuple(draw(st.lists(st.sampled_from(["gcc/12.2", "a@1:b=+c", "x"]), max_size=3))),
        conda="" if container else draw(st.one_of(st.just(""), WORDS)),
        container=container,
        binds=tuple(f"/{text}:/in:ro" for text in draw(st.lists(WORDS, max_size=2))) if container else (),
        setup=draw(SHELL),
        launcher=draw(st.sampled_from(["", "srun", "mpirun --map-by 'a b'"])) if launches else "",
    )
    return None if made == Preparation() else made


@st.composite
def stages(draw, name, before, *, several=False):
    walltime_s = draw(SECONDS)
    cpus_per_task = draw(st.integers(1, 8))
    cores = draw(st.one_of(st.none(), st.integers(1, 1000).map(lambda count: count * cpus_per_task)))
    after = tuple(draw(st.lists(st.sampled_from(before), unique=True)) if before else ())
    kinds = {name: draw(st.sampled_from(["", "any", "start"])) for name in after}
    given = dict(  # noqa: C408 - the fields as they are
        cores=cores,
        nodes=draw(st.integers(1, 9)) if cores is None else None if several else draw(st.sampled_from([None, 2, 9])),
        walltime_s=walltime_s,
        expected_run_s=draw(st.sampled_from([None, walltime_s])),
        after=after,
        when=draw(st.sampled_from(["success", "any", "failed", "always"])) if after else "success",
        after_any=tuple(name for name in after if kinds[name] == "any"),
        after_start=tuple(name for name in after if kinds[name] == "start"),
        start_delay_s=draw(st.sampled_from([0.0, 300.0])) if "start" in kinds.values() else 0.0,
        memory_bytes=draw(st.integers(0, 1 << 40)),
        burst_buffer_bytes=draw(st.sampled_from([0, 1, 1 << 30, 20 << 40])),
        gpus=draw(st.integers(0, 4)),
        exclusive=draw(st.booleans()),
        partition=draw(TEXT),
        account=draw(TEXT),
        reservation=draw(TEXT),
        nice=draw(st.sampled_from([0, 100, -5])),
        cpus_per_task=cpus_per_task,
        options=tuple(f"--{draw(st.sampled_from('abz'))}{text}" for text in draw(st.lists(SHELL, max_size=2))),
        environment=tuple(draw(VARIABLES).items()),
        secrets=tuple(draw(st.lists(st.sampled_from(["HF_TOKEN", "a_key"]), max_size=2))),
        inputs=tuple(draw(st.lists(SOME, max_size=3))),
        outputs=tuple(draw(st.lists(SOME, max_size=3))),
        stdout=draw(st.sampled_from(["", "logs/%x-%4j.out"])),
        stderr=draw(st.sampled_from(["", "logs/%x.err", 'a"b'])),
        retries=draw(st.integers(0, 100)),
        retry_walltime_factor=draw(st.one_of(st.just(2.0), st.floats(1, 10))),
        retry_memory_factor=draw(st.one_of(st.just(2.0), st.floats(1, 10))),
        retry_max_memory_bytes=draw(st.sampled_from([0, 1 << 30, 3 << 20])),
        local=not several and draw(st.booleans()),
        learns_run=draw(st.booleans()),
        input_size=draw(st.one_of(st.none(), st.floats(1e-9, 1e30))),
        input_patience_s=draw(st.sampled_from([None, 0.0, 10.0, 90.0, 3600.0])),
        out_of_memory=draw(st.sampled_from(["fail", "ignore"])),
        comment=draw(st.sampled_from(["", "align sample=B", 'a"b'])),
    )
    others = {"name", "command", "script", "tasks", "tasks_file"}  # what runs
    others |= {"run_spread", "assumes_walltime"}  # what only past runs tell
    others |= {"moldable", "jobs", "continues", "preparation", "array", "after_matching"}  # which follow
    others |= {"request"}  # in place of some of these
    assert {one.name for one in fields(Stage)} == given.keys() | others, "a field of a stage is not tried here"
    payload = draw(PAYLOAD)
    width = (cores or 0) // cpus_per_task or given["nodes"] or 1
    is_shared = bool(payload.get("tasks") or payload.get("tasks_file")) and not given["local"] and not several
    count = draw(st.sampled_from([n for n in range(1, 9) if width % n == 0])) if is_shared else 1
    if (given["nodes"] or count) % count:
        count = 1
    made = Stage(name, **given, **payload, jobs=(draw(st.integers(1, count)), count))
    launches = not (payload.get("tasks") or payload.get("tasks_file") or given["local"])
    if draw(st.booleans()):
        made = replace(made, preparation=draw(preparations(launches=launches)))
    may_continue = bool(payload.get("command", "").strip() or payload.get("script")) and not given["local"]
    if may_continue and draw(st.booleans()):
        made = replace(made, continues=draw(legs(walltime_s)))
    may_be_array = launches and not several and made.continues is None and made.moldable is None
    if may_be_array and draw(st.booleans()):
        numbers = draw(st.sets(st.integers(0, 50), min_size=1, max_size=9))
        array = Array(Elements.of(numbers), draw(st.sampled_from([0, 1, 7])))
        made = replace(made, array=array, outputs=tuple(f"{path}%a" for path in made.outputs))
    return draw(moldables(made)) if several else made


@st.composite
def workflows(draw):
    names = draw(
        st.lists(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,9}", fullmatch=True), min_size=1, max_size=5, unique=True)
    )
    listed = [draw(stages(name, names[:i])) for i, name in enumerate(names)]
    whole_s = sum(stage.in_one_job_s for stage in listed)
    whole_s = min(whole_s * 1.5, LONGEST_WALLTIME_S)
    return Workflow(draw(SOME), listed, walltime_s=draw(st.sampled_from([None, whole_s])))


@pytest.mark.full
@given(workflows())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_what_is_written_reads_back_equal(tmp_path, flow):
    """Whatever its commands hold: quotes, braces, other lines' ends."""
    path = tmp_path / "flow.toml"
    path.write_text(write_workflow(flow), encoding="utf-8", newline="")
    again = load_workflow(path)
    assert (again.name, dict(again.stages), again.walltime_s) == (flow.name, dict(flow.stages), flow.walltime_s)
    assert list(again.stages) == list(flow.stages)


@given(stages("a", [], several=True))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_a_stage_of_several_shapes_reads_back_equal(tmp_path, stage):
    path = tmp_path / "flow.toml"
    path.write_text(write_workflow(Workflow("w", [stage])), encoding="utf-8", newline="")
    assert load_workflow(path).stages["a"] == stage


def test_it_reads_well():
    """No escapes where none are needed, durations as people write them."""
    flow = Workflow(
        "mosaic",
        [
            Stage("list", cores=1, walltime_s=600, command='mImgtbl raw raw.tbl\ngrep "count=9" raw.log\n', local=True),
            Stage(
                "project", cores=28, walltime_s=5400, expected_run_s=1320, learns_run=True, after=("list",),
                tasks_file="project.tasks", memory_bytes=4 << 30, retries=2, retry_walltime_factor=1.5,
                environment=(("OMP_NUM_THREADS", "4"),), outputs=("proj/*.fits",),
            ),
        ],
    )  # fmt: skip
    assert (
        write_workflow(flow)
        == """\
name = "mosaic"

[[stage]]
name = "list"
command = '''
mImgtbl raw raw.tbl
grep "count=9" raw.log
'''
cores = 1
walltime = "10min"
local = true

[[stage]]
name = "project"
after = ["list"]
tasks_file = "project.tasks"
cores = 28
memory = "4G"
walltime = "1h30m"
expected = { learn = true, until = "22min" }
outputs = ["proj/*.fits"]
retries = { times = 2, walltime_factor = 1.5 }
environment = { OMP_NUM_THREADS = "4" }
"""
    )


def test_several_shapes_read_well():
    """Its own width first, and a range where the widths are doubled."""
    points = (RunAt(7, 21600.0), RunAt(28, 5700.0), RunAt(112, 2400.0))
    flow = Workflow(
        "moments",
        [
            Stage(
                "all", cores=28, walltime_s=28800, expected_run_s=5700, command="x", partition="short", learns_run=True,
                moldable=Moldable((7, 14, 28, 112), points, Scaling("amdahl"), ((7, 36000.0), (28, 28800.0)),
                                  ("short", "batch")),
            ),
            Stage("some", nodes=2, walltime_s=3600, command="x",
                  moldable=Moldable((2, 4, 7), scaling=Scaling("downey", parallelism=60.0, variance=0.5))),
        ],
    )  # fmt: skip
    assert (
        write_workflow(flow)
        == """\
name = "moments"

[[stage]]
name = "all"
command = "x"
cores = [28, 7, 14, 112]
partition = ["short", "batch"]
walltime = { 7 = "10h", 28 = "8h" }
expected = { learn = true, until = { 7 = "6h", 28 = "1h35m", 112 = "40min" } }
scaling = "amdahl"

[[stage]]
name = "some"
command = "x"
nodes = "2..7"
walltime = "1h"
scaling = { downey = { parallelism = 60, variance = 0.5 } }
"""
    )


def test_scripts_may_stay_in_their_files(tmp_path):
    """The path is written; without one a script that could be taken for a path is refused."""
    (tmp_path / "a.sh").write_text("echo one line")
    flow = Workflow("w", [Stage("a", cores=1, script="echo one line")])
    path = tmp_path / "flow.toml"
    path.write_text(write_workflow(flow, {"a": "a.sh"}))
    assert 'script = "a.sh"' in path.read_text()
    assert load_workflow(path).stages == flow.stages
    with pytest.raises(InputError, match="stage 'a': has a script of one line"):
        write_workflow(flow)


@pytest.mark.parametrize("stage", [{"command": "a\0"}, {"tasks": ("a\0",)}, {"script": "#!/bin/sh\na\0\n"}])
def test_what_would_not_read_back_is_not_written(stage):
    """A null byte, which no file may have."""
    with pytest.raises(InputError, match="null"):
        write_workflow(Workflow("w", [Stage("a", cores=1, **stage)]))

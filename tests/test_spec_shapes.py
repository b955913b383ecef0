"""Stages of several shapes in workflow files: reading, errors, and the notes of `asa check`."""

import pytest

from asa.errors import InputError
from asa.shapes import Moldable, RunAt, Scaling
from asa.spec import check_file, load_workflow
from asa.spec.checks import check_here
from asa.workflow import Stage

HEAD = 'name = "w"\n[[stage]]\nname = "a"\n'
MOMENTS = """
command = "mpirun -n $ASA_CORES true"
cores = [28, 7, 14, 56, 112]
expected = { 7 = "6h", 28 = "95min", 112 = "40min" }
walltime = "8h"
partition = ["short", "batch"]
"""


@pytest.fixture
def file(tmp_path):
    def write(text, head=HEAD):
        (tmp_path / "flow.toml").write_text(head + text)
        return tmp_path / "flow.toml"

    return write


def read(path, **parameters):
    return load_workflow(path, parameters).stages["a"]


def told(problems, severity):
    return [(problem.line, problem.message) for problem in problems if problem.severity == severity]


def notes(path):
    return [message for _, message in told(check_file(path), "note")]


def test_what_a_stage_may_be_asked_for_arrives(file):
    points = (RunAt(7, 21600.0), RunAt(28, 5700.0), RunAt(112, 2400.0))
    assert read(file(MOMENTS)) == Stage(
        "a", cores=28, walltime_s=28800.0, expected_run_s=5700.0, command="mpirun -n $ASA_CORES true",
        partition="short", moldable=Moldable((7, 14, 28, 56, 112), points, partitions=("short", "batch")),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "own", "widths"),
    [
        ('"7..112"', 7, (7, 14, 28, 56, 112)),
        ('"8..100"', 8, (8, 16, 32, 64, 100)),
        ('" 1 .. 1 "', 1, None),
        ("[28]", 28, None),
        ("[4, 2]", 4, (2, 4)),
    ],
)
def test_widths_are_a_list_whose_first_is_its_own_or_a_range_that_is_doubled(file, sizes, own, widths):
    for key in ("cores", "nodes"):
        stage = read(file(f'{key} = {sizes}\nwalltime = "1h"\n'))
        assert (getattr(stage, key), stage.width, stage.moldable and stage.moldable.widths) == (own, own, widths)
    stage = read(file(f'ntasks = {sizes}\ncpus_per_task = 2\nwalltime = "1h"\n'))
    assert (stage.cores, stage.moldable and stage.moldable.widths) == (
        2 * own,
        widths and tuple(2 * width for width in widths),
    )


def test_what_is_said_at_tasks_counts_tasks(file):
    stage = read(file('ntasks = [8, 4]\ncpus_per_task = 2\nexpected = { 8 = "1h", 4 = "2h" }\nwalltime = "3h"\n'))
    assert stage.moldable.run_at == (RunAt(8, 7200.0), RunAt(16, 3600.0))


def test_a_stage_of_one_shape_is_what_it_was(file):
    plain = read(file('cores = 28\npartition = "x"\nexpected = "1h"\nwalltime = "2h"\n'))
    assert plain == Stage("a", cores=28, partition="x", expected_run_s=3600.0, walltime_s=7200.0)
    same = read(file('cores = [28]\npartition = ["x"]\nexpected = { 28 = "1h" }\nwalltime = { 28 = "2h" }\n'))
    assert same == plain


def test_between_widths_its_own_is_interpolated(file):
    path = file('cores = 14\nexpected = { 7 = "4h", 28 = "1h" }\nwalltime = { 7 = "8h", 28 = "2h" }\n')
    stage = read(path)
    assert (stage.expected_run_s, stage.walltime_s, stage.moldable) == (pytest.approx(7200), pytest.approx(14400), None)
    assert notes(path) == ["stage 'a': there is a run time on 7, 28 cores, which is not one of its widths"]


@pytest.mark.parametrize(
    ("said", "scaling"),
    [
        ('"amdahl"', Scaling("amdahl")),
        ("{ amdahl = 0.95 }", Scaling("amdahl", parallel=0.95)),
        ('{ amdahl = "0.{{part}}" }', Scaling("amdahl", parallel=0.9)),
        ('"{{law}}"', Scaling("downey")),
        ("{ downey = { parallelism = 60, variance = 0.5 } }", Scaling("downey", parallelism=60, variance=0.5)),
        ('"measured"', Scaling()),
        ('"tasks"', Scaling("tasks", per_task=2)),
    ],
)
def test_laws(file, said, scaling):
    head = 'name = "w"\n[parameters]\npart = 9\nlaw = "downey"\n[[stage]]\nname = "a"\n'
    path = file(f'cores = [28, 14]\ncpus_per_task = 2\nwalltime = "1h"\nscaling = {said}\n', head)
    assert read(path).moldable.scaling == scaling


def test_tasks_scale_as_tasks_unless_something_else_is_known(file):
    some = 'walltime = "1h"\ncores = [4, 8]\ncpus_per_task = 2\n'
    bag = read(file(some + 'tasks = ["x", "x", "x"]\n'))
    assert bag.moldable.scaling == Scaling("tasks", tasks=3, per_task=2)
    assert [shape.run_s for shape in bag.shapes] == [3600, 1800]
    assert read(file(some + 'tasks_file = "x"\n')).moldable.scaling == Scaling("tasks", per_task=2)
    assert read(file(some + 'tasks = ["x"]\nscaling = "measured"\n')).moldable.scaling == Scaling()
    assert read(file(some + 'tasks = ["x"]\nexpected = { 4 = "1h" }\n')).moldable.scaling == Scaling()
    nodes = read(file('walltime = "1h"\nnodes = [1, 2]\ntasks = ["x", "x", "x"]\n'))
    assert nodes.moldable.scaling == Scaling("tasks"), "how many fit on a node is not known"


def test_parameters_and_defaults_hold_for_all_of_it(file):
    path = file(
        'expected = { "{{narrow}}" = "2h", 28 = "{{long}}" }\n',
        'name = "w"\n[parameters]\nnarrow = 14\nlong = "90min"\nsite = "short"\n'
        '[defaults]\ncores = [28, "{{narrow}}"]\npartition = ["{{site}}", "batch"]\nscaling = "amdahl"\n'
        'walltime = { "{{narrow}}" = "4h", 28 = "3h" }\n[[stage]]\nname = "a"\n',
    )
    stage = read(path, narrow=7)
    assert (stage.moldable.widths, stage.moldable.partitions) == ((7, 28), ("short", "batch"))
    assert stage.moldable.run_at == (RunAt(7, 7200.0), RunAt(28, 5400.0))
    assert stage.moldable.walltime_at == ((7, 14400.0), (28, 10800.0))
    ranged = file('walltime = "1h"\n', 'name = "w"\n[parameters]\nlast = 8\n[defaults]\ncores = "2..{{last}}"\n'
                  '[[stage]]\nname = "a"\n')  # fmt: skip
    assert read(ranged, last=4).moldable.widths == (2, 4)


def test_run_times_may_be_learned_at_each_width(file):
    learned = read(
        file('cores = [28, 7]\nwalltime = "8h"\nexpected = { learn = true, until = { 7 = "6h", 28 = "1h" } }\n')
    )
    assert (learned.learns_run, learned.expected_run_s, len(learned.moldable.run_at)) == (True, 3600, 2)


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        ("cores = [28, 0]", 5, "cores: must be 1 or more, not 0"),
        ("cores = [28, -7]", 5, "cores: must be 1 or more, not -7"),
        ('cores = "0..8"', 5, "cores: must be 1 or more, not 0"),
        ("cores = [28, 30_000_000]", 5, "cores: must be 20000000 or less, not 30000000"),
        ("cores = [\n28,\n28.5,\n]", 7, "cores: must be a whole number, without quotes, not 28.5"),
        ("cores = [28, 28]", 5, "cores: 28 is there twice"),
        ("cores = []", 5, "cores: must not be empty"),
        ('cores = "1..10_"'.replace("_", 10 * "0"), 5, "cores: must be 20000000 or less, not 100000000000"),
        ('cores = "28.."', 5, "cores: '28..' is not a range"),
        ('cores = "28..7"', 5, "cores: '28..7' ends before it begins"),
        (f"cores = {list(range(1, 200))}", 5, "cores: has 199 entries"),
        ("cores = [28, 6]\ncpus_per_task = 4", 6, "asks for 6 cores in tasks of 4"),
        ("cores = [28, 7]\nnodes = 2", 2, "asks for cores and nodes, and for several shapes"),
        ("nodes = 2\npartition = ['a', 'b']\ncores = 2", 2, "asks for cores and nodes, and for several shapes"),
        ("cores = [28, 7]\nlocal = true", 2, "runs on the client's computer, but asks for several shapes"),
        ('cores = [28, 7]\nexpected = { 28 = "1h", wide = "1h" }', 6, "expected: 'wide' is not a width"),
        ('cores = [28, 7]\nexpected = { 28 = "1h", "028" = "1h" }', 6, "expected: 28 is there twice"),
        ('cores = [28, 7]\nexpected = { 28 = "1h", learn = true }', 6, "expected: 'learn' is among widths"),
        ('cores = [28, 7]\n[stage.expected]\n28 = "1h"\n7 = "soon"', 8, "expected at 7: 'soon' is no duration"),
        ('cores = [28, 7]\nexpected = { 7 = "1h" }', 6, "no run time is known on 28 cores, its own width"),
        ('cores = [28, 7]\nexpected = { 28 = "9h" }', 6, "is expected to run 9h00m within a walltime of 8h00m"),
        ('cores = [28, 7]\nscaling = "amdhal"', 6, "scaling: 'amdhal' is not a scaling law"),
        ("cores = [28, 7]\nscaling = { amdahl = 1.5 }", 6, "scaling: parallel is 1.5"),
        ("cores = [28, 7]\nscaling = { amdahl = true }", 6, "scaling: parallel is True"),
        ("cores = [28, 7]\nscaling = { tasks = 3 }", 6, "scaling: tasks takes no parameter"),
        ("cores = [28, 7]\nscaling = { downey = { paralelism = 3 } }", 6, "downey has no parameter 'paralelism'"),
        ('cores = 28\npartition = ["a", "a"]', 6, "partition: 'a' is there twice"),
        ('cores = 28\npartition = ["a", 3]', 6, "partition: must be text in quotes"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_line(file, lines, line, words):
    path = file(f"{lines}\n", HEAD + 'walltime = "8h"\n')
    found = told(check_file(path), "error")
    assert [(at, words in message) for at, message in found] == [(line, True)], found
    with pytest.raises(InputError, match="stage 'a'"):
        load_workflow(path)


def test_a_walltime_by_width_must_hold_for_its_own(file):
    path = file('cores = [28, 7]\nwalltime = { 7 = "1h" }\n')
    assert told(check_file(path), "error") == [(5, "stage 'a': there is no walltime for 28 cores, its own width")]


def test_widths_that_are_never_asked_for_are_told(file):
    mute = "stage 'a': it is never submitted on {}, because no run time is known there"
    assert notes(file(MOMENTS)) == []
    more = MOMENTS.replace("[28, 7,", "[28, 4, 7,").replace("112]", "112, 224]")
    assert notes(file(more)) == [mute.format("4, 224 cores")]
    assert notes(file(more + 'scaling = "amdahl"\n')) == []
    assert notes(file('nodes = [2, 4]\nwalltime = "8h"\n')) == [mute.format("4 nodes")]
    assert notes(file('nodes = [2, 4]\nwalltime = "8h"\nscaling = "amdahl"\n')) == [mute.format("4 nodes")]
    assert notes(file('nodes = [2, 4]\nwalltime = "8h"\nscaling = { amdahl = 0.9 }\n')) == []


def test_run_times_that_grow_with_cores_are_allowed_and_told(file):
    path = file('cores = [7, 14]\nexpected = { 7 = "1h", 14 = "2h", 28 = "1h" }\nwalltime = "4h"\n')
    assert [shape.run_s for shape in read(path).shapes] == [3600, 7200]
    assert notes(path) == [
        "stage 'a': there is a run time on 28 cores, which is not one of its widths",
        "stage 'a': it is expected to run longer on more cores: 2h00m on 14, 1h00m on 7",
    ]


# ---------------------------------------------------------------------- what it runs

SEVERAL = 'cores = [28, 7]\nexpected = { 28 = "1h", 7 = "3h" }\nwalltime = "8h"\n'


def of_widths(path, tmp_path):
    found = check_here(path, folder=tmp_path)
    return [p.message for p in found if "width" in p.message or "processes" in p.message or "tasks" in p.message]


@pytest.mark.parametrize("launch", ["mpirun -n 28", "mpirun -np 28", "srun -n28", "srun --mpi=pmix --ntasks=28"])
def test_a_fixed_number_of_processes_is_warned_of(file, tmp_path, launch):
    message = f"stage 'a': {launch.split()[0]} starts 28 processes, whichever of its widths it gets"
    path = file(SEVERAL + f'command = """\ntrue\n{launch} true\n"""\n')
    assert (9, message) in told(check_here(path, folder=tmp_path), "warning")
    assert of_widths(file(f'cores = 28\nwalltime = "1h"\ncommand = "{launch} true"\n'), tmp_path) == []


@pytest.mark.parametrize(
    "command",
    [
        "mpirun -n $ASA_CORES true",
        "srun true",
        "mpirun -n 1 true; mpirun true",
        "OMP_NUM_THREADS=$ASA_CORES true",
        "make -j $(nproc)",
        "true -n $SLURM_NTASKS",
    ],
)
def test_what_takes_the_cores_that_it_gets_is_right(file, tmp_path, command):
    assert of_widths(file(SEVERAL + f"command = '{command}'\n"), tmp_path) == []


def test_what_never_asks_how_many_cores_it_got_is_noted(file, tmp_path):
    silent = "stage 'a': it has several widths, but its command does not use the one that it gets"
    assert of_widths(file(SEVERAL + 'command = "true"\n'), tmp_path) == [silent]
    assert of_widths(file(SEVERAL + "script = '''\n#!/usr/bin/env python3\nprint(1)\n'''\n"), tmp_path) == [silent]
    script = "script = '''#!/usr/bin/env python3\nimport os\nprint(os.environ[\"ASA_CORES\"])\n'''\n"
    assert of_widths(file(SEVERAL + script), tmp_path) == []


@pytest.mark.parametrize(
    ("task", "each", "severity"),
    [
        ("mpirun true", 1, "error"),
        ("mpirun -n 4 true", 1, "error"),
        ("mpirun -n 4 true", 4, None),
        ("srun -n1 true", 1, None),
        ("mpirun -n $N true", 4, "warning"),
        ("srun --exclusive -N1 true", 1, "warning"),
    ],
)
def test_mpi_in_tasks_has_the_cores_of_its_task(file, tmp_path, task, each, severity):
    """What is told to start more, or nothing at all, takes what belongs to others; of the rest nobody knows."""
    text = f"cores = [8, 4]\ncpus_per_task = {each}\nwalltime = '8h'\ntasks = ['{task}']\n"
    problems = check_here(file(text), folder=tmp_path)
    assert [p.severity for p in problems if "in one of its tasks, which get" in p.message] == [severity] * bool(
        severity
    )


def test_a_bag_of_mpi_contradicts_itself(file, tmp_path):
    tasks = SEVERAL + 'tasks = ["mpirun true", "mpirun true"]\n'
    assert of_widths(file(tasks), tmp_path) == [
        "stage 'a': mpirun in one of its tasks, which get 1 core each, however wide it is"
    ]
    assert of_widths(file(SEVERAL + 'tasks = ["true 1", "true 2"]\n'), tmp_path) == []
    claimed = file(SEVERAL + 'command = "xargs -P $ASA_CORES true"\nscaling = "tasks"\n')
    assert of_widths(claimed, tmp_path) == [
        "stage 'a': scaling = \"tasks\" is for work that is shared evenly among $ASA_CORES"
    ]

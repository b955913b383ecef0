"""MPI programs whose number of processes changes: each row comes to its process, and no bit of a result changes."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from asa.backends.dmr.manager import LocalManager

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "malleable_mpi" / "programs.py"
MPIRUN = shutil.which("mpirun")
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SIZES = (4, 6, 4, 2, 5, 1, 3, 2)

pytestmark = [
    pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun here"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
]


def mpirun(program, *arguments, processes=2, slots="--oversubscribe", code=0):
    command = [MPIRUN, *slots.split(), "-n", str(processes), sys.executable, str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=ENVIRONMENT)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a program, which puts what its processes find into a file of lines."""

    def write(text):
        head = """
            import json, os, sys
            import numpy as np
            from asa.dmr.mpi import Ranks
            from asa.errors import InputError, RunError

            def tell(*words):
                with open(sys.argv[1], "a") as file:
                    file.write(json.dumps(words) + "\\n")
            """
        path = tmp_path / "program.py"
        lines = head.splitlines()
        path.write_text("\n".join(line[12:] for line in lines) + text)
        return path

    return write


def told(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


EACH_ROW = """
def begin(rows):
    n = np.arange(rows.start, rows.stop)
    return {"numbers": n, "wide": np.add.outer(n * 10.0, np.arange(3)).astype("f4").reshape(len(rows), 3, 1),
            "flags": n % 3 == 0, "pairs": np.array([(k, -k) for k in rows], [("a", "i2"), ("b", "f8")])}

sizes = json.loads(sys.argv[2])
with Ranks(5, begin, {"step": 0}) as ranks:
    while True:
        expected = begin(ranks.rows)
        right = all(np.array_equal(ranks.arrays[name], array) for name, array in expected.items())
        typed = all(ranks.arrays[name].dtype == array.dtype for name, array in expected.items())
        whole = ranks.gather(ranks.arrays["numbers"]).tolist() == list(range(5))
        is_right = right and typed and whole
        ranks.arrays["wide"] = np.asfortranarray(ranks.arrays["wide"])  # of rows that are not contiguous
        tell(ranks.values["step"], ranks.rank, ranks.processes, list(ranks.rows), is_right, os.getpid())
        if ranks.values["step"] == len(sizes):
            break
        ranks.values["step"] += 1
        if not ranks.resize(sizes[ranks.values["step"] - 1]):
            break
"""


def test_each_row_comes_to_its_process(program, tmp_path):
    """Of arrays of any kind, also where there are more processes than rows; those that stay are the same processes."""
    out = tmp_path / "told"
    mpirun(program(EACH_ROW), out, json.dumps(SIZES), processes=3)
    lines = told(out)
    pids = []
    for step, processes in enumerate((3, *SIZES)):
        here = sorted(line[1:] for line in lines if line[0] == step)
        assert [line[0] for line in here] == list(range(processes))
        assert {line[1] for line in here} == {processes}
        assert [row for line in here for row in line[2]] == list(range(5))
        assert all(line[3] for line in here)
        pids.append([line[4] for line in here])
    assert pids[2][:4] == pids[1]
    assert pids[1][:3] == pids[0], "an expansion leaves all processes in their places"
    assert pids[3] == pids[1], "those that were spawned together leave together"
    assert not set(pids[4]) & set(pids[0]), "fewer than it began with: the first group is replaced"


SUMS = """
with Ranks(1000, lambda rows: {"x": 1 / (1 + np.array(rows, float))}) as ranks:
    if ranks.rank == 0:
        tell(float(ranks.total(ranks.arrays["x"])).hex())
    else:
        ranks.total(ranks.arrays["x"])
"""


def test_a_sum_is_the_same_for_any_number_of_processes(program, tmp_path):
    out = tmp_path / "told"
    for processes in (1, 3, 4):
        mpirun(program(SUMS), out, processes=processes)
    assert {line[0] for line in told(out)} == {float((1 / (1 + np.arange(1000.0))).sum()).hex()}


REFUSED = """
for begin in (lambda rows: {"x": np.zeros(len(rows) + 1)}, lambda rows: {"x": np.zeros(len(rows), object)},
              lambda rows: {"x": 0.0}, lambda rows: {"x": np.zeros(len(rows), int if rows.start else float)}):
    try:
        Ranks(4, begin)
    except InputError as error:
        tell(str(error))
with Ranks(4, lambda rows: {"x": np.zeros(len(rows))}) as ranks:
    for what in (lambda: ranks.resize(0), lambda: ranks.gather(np.zeros(9)), lambda: ranks.check(3, 2)):
        try:
            what()
        except InputError as error:
            tell(str(error))
"""


def test_what_cannot_be_is_refused_in_all_processes(program, tmp_path):
    out = tmp_path / "told"
    mpirun(program(REFUSED), out)
    lines = [line[0] for line in told(out)]
    for words in ("3 rows on process 0", "objects", "no rows", "int64", "0 processes", "9 rows", "maximum"):
        assert sum(words in line for line in lines) == 2, (words, lines)


FAILS = """
with Ranks(4, lambda rows: {"x": np.zeros(len(rows))}) as ranks:
    if ranks.rank == 1:
        raise ValueError("no luck")
    ranks.gather(ranks.arrays["x"])
"""


def test_a_process_that_fails_ends_the_program(program, tmp_path):
    """The others would wait for it; its traceback is printed."""
    done = mpirun(program(FAILS), tmp_path / "told", code=1)
    assert "ValueError: no luck" in done.stderr


BEGINS_BADLY = """
def begin(rows):
    if rows.start:
        raise ValueError("no luck")
    return {"x": np.zeros(len(rows))}

with Ranks(4, begin) as ranks:
    tell("begun")
"""


def test_a_process_that_cannot_begin_ends_the_program(program, tmp_path):
    done = mpirun(program(BEGINS_BADLY), tmp_path / "told", code=1)
    assert "ValueError: no luck" in done.stderr
    assert not (tmp_path / "told").exists()


NO_SLOTS = """
with Ranks(4, lambda rows: {"x": np.array(rows)}) as ranks:
    try:
        ranks.resize(4)
    except RunError as error:
        tell(ranks.rank, ranks.processes, list(ranks.arrays["x"].tolist()), str(error))
"""


def test_it_goes_on_where_nothing_can_be_spawned(program, tmp_path):
    """Open MPI's mpirun does not end by itself after that."""
    out = tmp_path / "told"
    command = [MPIRUN, "--host", "localhost:2", "-n", "2", sys.executable, str(program(NO_SLOTS)), str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.terminate()
    lines = sorted(told(out))
    assert [line[:3] for line in lines] == [[0, 2, [0, 1]], [1, 2, [2, 3]]]
    assert all("--oversubscribe" in line[3] for line in lines)


# ---------------------------------------------------------------------- the paper's applications


def shorter(tmp_path, **values):
    """Write the example with other constants."""
    text = EXAMPLE.read_text()
    for name, value in values.items():
        [line] = [line for line in text.splitlines() if line.startswith(f"{name} = ")]
        text = text.replace(line, f"{name} = {value}")
    path = tmp_path / EXAMPLE.name
    path.write_text(text)
    return path


def plain_jacobi(points, iterations):
    plate = np.zeros((points + 2, points + 2))
    plate[0] = 1.0
    plate[0, [0, -1]] = 0.0
    for _ in range(iterations):
        plate[1:-1, 1:-1] = 0.25 * (plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:])
    return plate[1:-1, 1:-1]


def laplacian(points):
    line = 2 * np.eye(points) - np.eye(points, k=1) - np.eye(points, k=-1)
    return np.kron(line, np.eye(points)) + np.kron(np.eye(points), line)


def plain_bodies(bodies, step, softening, iterations):
    """Go through all pairs in plain Python."""
    drawn = np.random.default_rng(1).random((bodies, 4))
    x, v, mass = drawn[:, :3].copy(), np.zeros((bodies, 3)), drawn[:, 3] / bodies
    for _ in range(iterations):
        x += 0.5 * step * v
        for i in range(bodies):
            for j in range(bodies):
                apart = x[j] - x[i]
                v[i] += step * mass[j] * apart / (apart @ apart + softening**2) ** 1.5
        x += 0.5 * step * v
    return x


@pytest.mark.full
@pytest.mark.parametrize("name", ["jacobi", "cg", "n-body", "fs"])
def test_results_are_the_same_to_the_last_bit(name, tmp_path):
    """And right, by a plain computation."""
    text = shorter(tmp_path, POINTS=24, BODIES=20, SLEEP_S=0.01)
    results = []
    for processes, sizes in ((1, "1"), (3, ",".join(map(str, SIZES)))):
        mpirun(text, name, "--sizes", sizes, "--out", tmp_path / "x.npy", processes=processes)
        results.append(np.load(tmp_path / "x.npy"))
    assert np.array_equal(*results)
    if name == "jacobi":
        assert np.allclose(results[0], plain_jacobi(24, 120), rtol=0, atol=1e-13)
    elif name == "cg":
        right = np.sin(np.add.outer(np.arange(24.0), 0.5 * np.arange(24)) ** 2 / 24).ravel()
        assert np.allclose(results[0].ravel(), np.linalg.solve(laplacian(24), right), rtol=0, atol=1e-10)
    elif name == "n-body":
        assert np.allclose(results[0], plain_bodies(20, 1e-3, 1e-2, 25), rtol=0, atol=1e-12)
    else:
        assert np.array_equal(results[0], np.add.outer(np.arange(1000.0), np.arange(128.0)))


@pytest.mark.full
def test_under_a_manager_it_shrinks_for_another_job_and_grows_again(tmp_path):
    command = [MPIRUN, "--oversubscribe", "-n", "4", sys.executable, str(shorter(tmp_path, SLEEP_S=2.0)), "fs"]
    out = tmp_path / "x.npy"
    with LocalManager(4) as manager:
        job = manager.submit([*command, "--out", str(out)], 4, name="fs", environment=ENVIRONMENT)
        rigid = manager.submit(["sleep", "600"], 2, name="rigid")
        while manager.job(rigid).start_s is None:
            assert not manager.wait(job, 0.05).state.is_final, "it should have shrunk"
        manager.cancel(rigid)
        lines = manager.wait(job).output.read_text().splitlines()
    assert [int(line.split()[0]) for line in lines] == [4, 2, 4], "it shrinks for the other, and grows again"
    assert np.array_equal(np.load(out), np.add.outer(np.arange(1000.0), np.arange(128.0)))

"""A stage in a container, with the real Apptainer on compute nodes: what runs in it, where, and how it ends."""

import os
import shlex
from pathlib import Path

import pytest
from slurm_runs import SlurmRun, stage
from slurm_testbed import NEWEST, Testbed, missing, until

from asa.preparation import Preparation

_PROGRAMS = "sh cat env grep id ls sed sleep"
_IMAGE = """\
set -e
for folder in bin etc proc sys dev tmp var/tmp root home; do mkdir -p {image}/$folder; done
echo in-the-image >{image}/etc/image
for program in {programs}; do
  file=$(readlink -f "$(command -v $program)")
  cp "$file" {image}/bin/$program
  for library in $(ldd "$file" | grep -o '/[^ ]*'); do
    mkdir -p {image}$(dirname $library)
    cp -L $library {image}$library
  done
done
"""


@pytest.fixture(scope="module")
def image_of(request):
    """Yield a cluster whose jobs may use Apptainer, and a folder that is an image, with the shell of its nodes."""
    if reason := missing(NEWEST):
        pytest.skip(reason)
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-images"), release=NEWEST, containers=True)
    if not (testbed.tree / "usr/bin/apptainer").exists():
        pytest.skip(f"no Apptainer in {testbed.tree}: add it with tests/slurm/tree.sh {NEWEST}")
    try:
        testbed.start()
        folder = testbed.folder("images")
        image = folder / "an image"
        testbed.run("sh", "-c", _IMAGE.format(image=shlex.quote(str(image)), programs=_PROGRAMS))
        words = ("apptainer", "exec", str(image), "cat", "/etc/image")
        if "in-the-image" not in testbed.run(*words, check=False):
            pytest.skip("no user namespaces here: " + testbed.run("sh", "-c", f"{shlex.join(words)} 2>&1 || :")[-300:])
        yield testbed, image
    finally:
        testbed.stop()


@pytest.fixture
def cluster(image_of):
    return image_of[0]


class PlainRun(SlurmRun):
    """A run whose stages stay as they are."""

    def _leaves_a_line(self, one):
        return one


def inside(image_of, then, *, binds=(), **more):
    said = Preparation(container=str(image_of[1]), binds=binds)
    return stage("a", then=then, preparation=said, **more)


def ran(cluster, one, link="commands"):
    run = PlainRun(cluster, [one], strategy="per-stage", link=link)
    (run.folder.path / "tasks").mkdir()
    (run.folder.path / "tasks").chmod(0o777)  # the client is root, jobs are not
    run.client().result()
    return run, run.folder.state()[0]


def logged(run):
    return "".join(file.read_text() for file in (run.folder.path / "logs").glob("*.err"))


@pytest.mark.parametrize("link", ["commands", "rest"])
def test_a_stage_runs_in_the_image_where_it_would_have_run(image_of, cluster, link):
    """It has the job's and its own variables, the folder of its run, `$TMPDIR`, and the bound paths."""
    beside = cluster.folder(f"a b {link}")
    (beside / "given").write_text("bound\n")
    then = (
        'cat /etc/image >told; cat /in/given >>told; echo "$WORDS" >>told; echo ${SLURM_JOB_ID:+job} >>told;'
        " echo x >${TMPDIR:-/tmp}/asa-there && echo temporary >>told;"
        " echo y 2>/dev/null >/in/given || echo closed >>told"
    )
    words = 'it\'s "quoted" $HOME `x` *'
    one = inside(image_of, then, binds=(f"{beside}:/in:ro",), environment=(("WORDS", words),), outputs=("told",))
    run, state = ran(cluster, one, link)
    assert state.outcome == "completed", (state.reason, logged(run))
    expected = ["in-the-image", "bound", words, "job", "temporary", "closed"]
    assert (run.place / "told").read_text().splitlines() == expected


@pytest.mark.parametrize("name", ["06:30, by hand", "it's"])
def test_a_folder_may_have_any_name(image_of, cluster, name, monkeypatch):
    one = inside(image_of, "cat /etc/image >told")
    monkeypatch.setattr(PlainRun, "called", name)
    run = PlainRun(cluster, [one], strategy="per-stage", link="commands")
    run.client().result()
    state = run.folder.state()[0]
    assert state.outcome == "completed", (state.reason, logged(run))
    assert (run.place / "told").read_text() == "in-the-image\n"


def test_a_cancelled_job_ends_what_runs_in_the_image(image_of, cluster):
    # not at once: two signals in Apptainer's own first moment end the container before the shell inside hears of one
    one = inside(image_of, "trap 'echo ended >told; exit 3' TERM; sleep 1; echo up >up; sleep 300 & wait")
    run = PlainRun(cluster, [one], strategy="per-stage", link="commands")
    client = run.client()
    until((run.place / "up").exists, what="the stage's first line")
    [job] = run.jobs()["a"]
    cluster.run("scancel", job["JobId"])
    client.result()
    assert until((run.place / "told").exists, within_s=20.0, what="the signal")


def test_each_task_of_a_list_runs_in_the_image(image_of, cluster):
    tasks = tuple(f"cat /etc/image >told.{number}" for number in range(5))
    said = Preparation(container=str(image_of[1]))
    one = stage("a", then="", cores=4, tasks=tasks, jobs=(2, 2), preparation=said)
    run, state = ran(cluster, one)
    assert state.outcome == "completed", (state.reason, logged(run))
    assert {file.read_text() for file in run.place.glob("told.*")} == {"in-the-image\n"}
    assert len(list(run.place.glob("told.*"))) == 5


def test_processes_of_a_launcher_run_in_the_image(image_of, cluster):
    said = Preparation(container=str(image_of[1]), launcher="srun")
    one = stage("a", then="cat /etc/image >told.$SLURM_PROCID", cores=3, preparation=said)
    run, state = ran(cluster, one)
    assert state.outcome == "completed", (state.reason, logged(run))
    assert [(run.place / f"told.{rank}").read_text() for rank in range(3)] == ["in-the-image\n"] * 3


def test_an_image_in_one_file_does_as_well(image_of, cluster):
    place, image = image_of[1].parent, image_of[1]
    built = cluster.run("sh", "-c", f"cd {place} && apptainer build one.sif {shlex.quote(str(image))} 2>&1 || :")
    if not (place / "one.sif").exists():
        pytest.skip(f"an image cannot be made here: {built[-300:]}")
    one = stage("a", then="cat /etc/image >told", preparation=Preparation(container=str(place / "one.sif")))
    run, state = ran(cluster, one)
    assert state.outcome == "completed", (state.reason, logged(run))
    assert (run.place / "told").read_text() == "in-the-image\n"


def test_an_exit_code_in_the_image_is_the_stages(image_of, cluster):
    _, state = ran(cluster, inside(image_of, "exit 7"))
    assert state.outcome == "failed"
    assert "7" in state.reason, state.reason


def test_an_image_that_is_not_there_is_named(image_of, cluster):
    one = stage("a", preparation=Preparation(container="other.sif"), retries=2)
    run, state = ran(cluster, one)
    assert state.outcome == "failed"
    assert "there is no container image other.sif" in logged(run)
    assert len(run.jobs()) == 1, "and the stage is not tried again"


def test_what_is_no_image_is_refused_in_apptainers_words(image_of, cluster):
    run, state = ran(cluster, stage("a", preparation=Preparation(container="/etc/passwd")))
    assert state.outcome == "failed"
    assert "FATAL" in logged(run), logged(run)

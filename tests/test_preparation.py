"""The environment of a stage: modules, conda, containers, set-up and launchers, in real shells."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from asa import Flow, Preparation
from asa.bags import Bag
from asa.elements import Array, Elements
from asa.errors import InputError, WorkflowError
from asa.outcome import JobOutcome, meaning
from asa.payload import Share, payload_text
from asa.preparation import KEYS
from asa.spec import check_file, load_workflow, write_workflow
from asa.spec.checks import check_here
from asa.workflow import Stage, Workflow

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
MODULES = next(
    (p for p in (Path("/usr/share/modules/init/sh"), Path("/usr/share/lmod/lmod/init/sh")) if p.exists()), None
)
needs_modules = pytest.mark.skipif(MODULES is None, reason="neither environment-modules nor lmod is installed")
needs_mpi = pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")


@pytest.fixture(params=SHELLS)
def shell(request):
    return request.param


class Place:
    """A folder in which payloads run, and a folder of programs of its own."""

    def __init__(self, root, shell):
        self.root, self.shell, self.programs = root / "here there", shell, root / "bin"
        self.root.mkdir()
        self.programs.mkdir()
        self.variables = {}

    def program(self, name, text):
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, command="", *, cores=1, place="", share=None, what=None, **said):
        stage = Stage("s", cores=cores, command=command, preparation=Preparation(**said), **(what or {}))
        done = subprocess.run(
            [self.shell, "-c", payload_text(stage, cores, folder=place, share=share)], cwd=self.root, text=True,
            capture_output=True, timeout=60, check=False,
            env={"PATH": f"{self.programs}:/usr/bin:/bin", "HOME": "/root", "ASA_LATENCY_S": "0"} | self.variables,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def place(tmp_path, shell):
    return Place(tmp_path, shell)


# ---------------------------------------------------------------------- what may be said

WHOLE = {
    "modules": ["gcc/12.2", "openmpi"], "container": "here there/a.sif", "binds": ["/scratch", "/data:/in:ro"],
    "setup": "export A='1'\nulimit -c 0", "launcher": "mpirun --map-by socket",
}  # fmt: skip
FILE = """
name = "w"
[defaults]
cores = 4
walltime = "1h"
modules = "gcc/12.2"
setup = "export A=1"
[[stage]]
name = "a"
command = "true"
[[stage]]
name = "b"
command = "true"
modules = []
setup = ""
launcher = "none"
[[stage]]
name = "c"
command = "true"
conda = "./env"
modules = ["x", "y/2"]
"""


def test_a_file_says_it_and_defaults_hold_unless_something_else_is_said(tmp_path):
    (tmp_path / "w.toml").write_text(FILE)
    a, b, c = load_workflow(tmp_path / "w.toml").stages.values()
    assert a.preparation == Preparation(modules=("gcc/12.2",), setup="export A=1")
    assert b.preparation is None
    assert c.preparation == Preparation(modules=("x", "y/2"), conda="./env", setup="export A=1")


def test_python_says_the_same_as_a_file(tmp_path):
    flow = Flow("w")
    stage = flow.stage("s", "true", **WHOLE)
    (tmp_path / "w.toml").write_text(write_workflow(flow.workflow))
    assert load_workflow(tmp_path / "w.toml").stages["s"] == stage
    assert all(getattr(stage.preparation, key) for key in set(KEYS) - {"conda"})
    with pytest.raises(InputError, match="modules cannot be 3"):
        flow.stage("t", "true", modules=3)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"modules": ["purge; rm -rf /"]}, "has a module"),
        ({"modules": ["-a"]}, "has a module"),
        ({"container": "a.sif", "conda": "b"}, "a container and a conda environment"),
        ({"binds": ["/x"]}, "but no container"),
        ({"container": "a.sif", "binds": ["/x:/y:rw:z"]}, "has a bind '/x:/y:rw:z'"),
        ({"container": "--writable"}, "begins with a dash"),
        ({"launcher": "mprun -n 4"}, "has a launcher 'mprun'"),
        ({"conda": "a\nb"}, "of several lines"),
        ({"setup": "a\0b"}, "null character"),
    ],
)
def test_what_makes_no_sense_is_refused(said, words):
    with pytest.raises(WorkflowError, match=words):
        Flow("w").stage("s", "true", **said)
    said = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}
    with pytest.raises(WorkflowError, match=words):
        Stage("s", cores=1, command="true", preparation=Preparation(**said))


def test_a_launcher_starts_a_command_and_no_list():
    with pytest.raises(WorkflowError, match="has a launcher, but is a list of tasks"):
        Flow("w").stage("s", tasks=["true"], launcher="srun")
    with pytest.raises(WorkflowError, match="computer, but by srun"):
        Flow("w").stage("s", "true", local=True, launcher="srun")


# ---------------------------------------------------------------------- modules


@pytest.fixture
def modules(place):
    (place.root / "modules" / "tool").mkdir(parents=True)
    for version in "12":
        text = f"#%Module1.0\nsetenv TOOL {version}\nprepend-path PATH /opt/tool/{version}/bin\n"
        (place.root / "modules" / "tool" / version).write_text(text)
    place.variables = {"MODULEPATH": str(place.root / "modules"), "ASA_MODULES_INIT": str(MODULES)}
    return place


@needs_modules
def test_modules_are_loaded(modules):
    code, out, err = modules.run('echo "$TOOL $PATH"', modules=("tool/1",))
    assert code == 0, err
    assert out.startswith("1 /opt/tool/1/bin:")


@needs_modules
@pytest.mark.parametrize("what", [{"script": "#!/bin/bash\necho $TOOL\n"}, {"tasks": ("echo $TOOL",)}])
def test_modules_are_there_for_scripts_and_tasks(modules, what):
    assert modules.run(modules=("tool/2",), what=what)[:2] == (0, "2\n")


@needs_modules
def test_a_module_that_is_not_there_ends_the_stage_before_it_begins(modules):
    code, out, err = modules.run("echo began", modules=("tool/1", "tool/3"))
    assert (code, out) == (JobOutcome.SETUP_FAILED.exit_code, "")
    assert "asa: the module tool/3 cannot be loaded on" in err
    assert JobOutcome.SETUP_FAILED.is_hopeless
    assert meaning(code, JobOutcome.SETUP_FAILED) == "its environment could not be set up"


def test_where_there_is_no_module_the_variable_is_named_that_finds_it(place, tmp_path):
    if Path("/etc/profile.d/modules.sh").exists() or MODULES is not None:
        place.variables = {"ASA_MODULES_INIT": str(tmp_path / "init")}
        (tmp_path / "init").write_text("module() { LOADEDMODULES=$2 TOOL=$2; export LOADEDMODULES TOOL; }\n")
        assert place.run("echo $TOOL", modules=("own",))[1].endswith("own\n"), "the site's own word comes first"
    else:
        assert "ASA_MODULES_INIT" in place.run("true", modules=("x",))[2]


# ---------------------------------------------------------------------- conda

CONDA = 'case "$1 $2 $3" in "shell.posix activate astro") echo "export CONDA_PREFIX=/envs/astro" ;; *) exit 1 ;; esac'
MICRO = 'case "$*" in "shell activate --shell posix astro") echo "export CONDA_PREFIX=/envs/astro" ;; *) exit 1 ;; esac'


@pytest.mark.parametrize(("exe", "text"), [("conda", CONDA), ("mamba", CONDA), ("micromamba", MICRO)])
def test_a_conda_environment_is_activated_by_who_is_there(place, exe, text):
    place.program(exe, text)
    assert place.run("echo $CONDA_PREFIX", conda="astro")[:2] == (0, "/envs/astro\n")
    code, out, err = place.run("echo began", conda="other")
    assert (code, out) == (JobOutcome.SETUP_FAILED.exit_code, "")
    assert "the conda environment other cannot be activated" in err


def test_a_folder_is_activated_where_nobody_knows_conda(place):
    (place.root / "env" / "bin").mkdir(parents=True)
    (place.root / "env" / "etc" / "conda" / "activate.d").mkdir(parents=True)
    (place.root / "env" / "etc" / "conda" / "activate.d" / "a.sh").write_text("export ACTIVE=yes\n")
    tool = place.root / "env" / "bin" / "tool"
    tool.write_text("#!/bin/sh\necho ours $ACTIVE\n")
    tool.chmod(0o755)
    assert place.run("tool", conda="./env")[:2] == (0, "ours yes\n")
    assert "neither conda, mamba nor micromamba" in place.run("tool", conda="env")[2]


def test_a_file_of_an_environment_says_how_it_is_made(place):
    assert "there is no file env.yml" in place.run("true", conda="env.yml")[2]
    (place.root / "env.yml").write_text("dependencies: [montage]\n")
    code, _, err = place.run("true", conda="env.yml")
    assert code == JobOutcome.SETUP_FAILED.exit_code
    command = err.partition("conda env create -f 'env.yml' -p ")[2].strip()
    folder = Path(command.strip("'"))
    assert folder.parent == place.root / ".asa" / "conda"
    (folder / "bin").mkdir(parents=True)
    assert place.run("echo $CONDA_PREFIX", conda="env.yml")[:2] == (0, f"{folder}\n")
    (place.root / "env.yml").write_text("dependencies: [montage, blast]\n")
    assert place.run("true", conda="env.yml")[0] == JobOutcome.SETUP_FAILED.exit_code, (
        "another content is another environment"
    )


# ---------------------------------------------------------------------- containers

APPTAINER = r"""
printf '<%s>' "$@" >>"$SEEN"; echo >>"$SEEN"
[ "$1" = exec ] || exit 1
shift
while :; do
  case $1 in --bind | --mount | --pwd) shift 2 ;; --*) shift ;; *) break ;; esac
done
IN=$1; export IN
shift
exec "$@"
"""


@pytest.fixture
def container(place):
    place.program("apptainer", APPTAINER)
    place.variables = {"SEEN": str(place.root / "seen")}
    (place.root / "an image.sif").touch()
    return place


def seen(place):
    return (place.root / "seen").read_text().splitlines()


WAYS = [
    ("echo in $IN", {}),
    ("", {"script": "#!/bin/sh\necho in $IN\n"}),
    ("", {"tasks": ("echo in $IN",)}),
]


@pytest.mark.parametrize(("command", "what"), WAYS)
def test_all_that_a_stage_runs_is_in_the_container(container, command, what):
    said = {"container": "an image.sif", "binds": ("/scratch", "/a b:/c:ro")}
    assert container.run(command, what=what, **said) == (0, "in an image.sif\n", "")
    (call,) = seen(container)
    assert f"<exec><--bind><{container.root}>" in call
    assert f"<--bind></scratch><--bind></a b:/c:ro><--pwd><{container.root}><an image.sif><" in call
    assert "<--nv>" not in call


def test_tasks_of_several_jobs_are_in_the_container(container):
    bag = container.root / "tasks" / "s"
    what = {"tasks": tuple("echo in $IN" for _ in range(4)), "jobs": (2, 2)}
    for taker in ("t-0", "t-1"):
        code, _, err = container.run(
            cores=2, place=str(bag), share=Share(0, taker, 2), what=what, container="docker://alpine"
        )
        assert code == 0, err
    assert len(seen(container)) == 4
    assert Bag(bag).progress().completed == 4


def test_gpus_are_seen_in_the_container_and_a_site_may_add_options(container):
    container.variables["ASA_CONTAINER_OPTIONS"] = "--cleanenv --no-home"
    assert container.run("true", container="docker://alpine", what={"gpus": 2})[0] == 0
    assert "<exec><--nv>" in seen(container)[0]
    assert "<--cleanenv><--no-home><docker://alpine>" in seen(container)[0]


def test_signals_reach_what_runs_in_a_container(container):
    text = "trap 'echo warned; exit 7' USR1; touch ready; while :; do sleep 0.1; done"
    stage = Stage("s", cores=1, command=text, preparation=Preparation(container="docker://alpine"))
    job = subprocess.Popen(
        [container.shell, "-c", payload_text(stage, 1)], cwd=container.root, text=True, stdout=subprocess.PIPE,
        env={"PATH": f"{container.programs}:/usr/bin:/bin", **container.variables},
    )  # fmt: skip
    for _ in range(200):
        if (container.root / "ready").exists():
            break
        subprocess.run(["sleep", "0.05"], check=True)
    job.send_signal(10)
    assert job.communicate(timeout=20)[0] == "warned\n"
    assert job.returncode == 7


def test_an_image_or_a_runtime_that_is_not_there_is_told(container):
    assert "there is no container image other.sif" in container.run("true", container="other.sif")[2]
    (container.programs / "apptainer").unlink()
    container.program("singularity", APPTAINER)
    assert container.run("echo $IN", container="docker://alpine")[1] == "docker://alpine\n"
    (container.programs / "singularity").unlink()
    if not any(map(shutil.which, ("apptainer", "singularity"))):
        assert "neither apptainer nor singularity" in container.run("true", container="docker://alpine")[2]


# ---------------------------------------------------------------------- set-up


def test_setup_hands_on_what_it_exports_and_changes_nothing_else(place):
    setup = "export A='x y'\nB=2\nset -euf\nIFS=,\ncd /"
    code, out, err = place.run('echo "$A ${B-none} $PWD" *.txt', setup=setup, what={"outputs": ("made*.txt",)})
    assert (code, out) == (85, f"x y none {place.root} *.txt\n"), err
    (place.root / "made1.txt").write_text("x")
    assert place.run("true", setup=setup, what={"outputs": ("made*.txt",)})[0] == 0


def test_what_cannot_be_set_up_is_not_begun(place):
    code, out, err = place.run("echo began", setup="false")
    assert (code, out) == (JobOutcome.SETUP_FAILED.exit_code, "")
    assert "the last line of its setup failed" in err


@pytest.mark.parametrize(
    "setup",
    ["exit 0", "return 0", "exit 3", "set -e\nfalse", "if then", ". ./leaves", "asa_need() { exit 0; }; exit 0"],
)
def test_a_setup_that_leaves_the_shell_does_not_complete_the_stage(place, setup):
    (place.root / "leaves").write_text("exit 0\n")
    code, out, err = place.run("echo began", setup=setup)
    assert (code, out) == (JobOutcome.SETUP_FAILED.exit_code, ""), err
    assert "asa: " in err


def test_a_module_that_only_says_that_it_was_loaded_was_not(place, tmp_path):
    """As Environment Modules 3 did."""
    place.variables = {"ASA_MODULES_INIT": str(tmp_path / "init")}
    (tmp_path / "init").write_text("module() { echo \"Unable to locate a modulefile for '$2'\" >&2; }\n")
    code, out, err = place.run("echo began", modules=("own",))
    assert (code, out) == (JobOutcome.SETUP_FAILED.exit_code, "")
    assert "the module own was not loaded" in err


def test_an_init_file_for_another_shell_is_told(place, tmp_path):
    place.variables = {"ASA_MODULES_INIT": str(tmp_path / "init")}
    (tmp_path / "init").write_text("exit 1\n")
    code, _, err = place.run("echo began", modules=("own",))
    assert code == JobOutcome.SETUP_FAILED.exit_code
    assert "the shell left before its environment was ready" in err


def test_a_launched_script_lies_where_all_nodes_see_it(container):
    container.program("srun", SRUN)
    what = {"script": "#!/bin/sh\necho $0\n"}
    code, out, err = container.run(cores=2, what=what, launcher="srun")
    assert code == 0, err
    assert Path(out.strip()).parent == container.root
    assert not list(container.root.glob(".asa-*")), "and is gone"


@pytest.mark.parametrize("name", ["a run", "a:run,"])
def test_a_launched_script_of_a_run_lies_in_its_folder_and_containers_see_it(container, name):
    container.program("srun", SRUN)
    run = container.root.parent / name / "tasks" / "s"
    what = {"script": "#!/bin/sh\necho $0 in $IN\n"}
    code, out, err = container.run(cores=2, place=str(run), what=what, launcher="srun", container="docker://a")
    assert code == 0, err
    assert Path(out.partition(" in ")[0]).parent == run
    assert not list(container.root.parent.rglob(".asa-*")), "and is gone"
    mount = f'<--mount><type=bind,"source={run}","destination={run}">'
    assert (f"<--bind><{run}>" if name == "a run" else mount) in "".join(seen(container))


def test_a_launched_element_that_is_taken_in_turn_lies_in_the_runs_folder(container):
    container.program("srun", SRUN)
    stage = Stage(
        "s", cores=1, script="#!/bin/sh\necho $0\n", array=Array(Elements.of(range(2))), walltime_s=600,
        preparation=Preparation(launcher="srun"),
    ).in_turn(1, 1)  # fmt: skip
    run = container.root.parent / "run" / "tasks" / "s"
    done = subprocess.run(
        [container.shell, "-c", payload_text(stage, 1, folder=str(run))], cwd=container.root, text=True, check=False,
        capture_output=True, env={"PATH": f"{container.programs}:/usr/bin:/bin", **container.variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {Path(line).parent for line in done.stdout.splitlines()} == {run}


def test_inputs_are_looked_for_before_anything_is_prepared(place):
    code, _, err = place.run("true", setup="echo prepared >&2", what={"inputs": ("raw",)})
    assert code == 84
    assert "prepared" not in err


# ---------------------------------------------------------------------- launchers


@needs_mpi
def test_mpirun_starts_as_many_as_there_are_tasks(place):
    place.variables = {f"OMPI_ALLOW_RUN_AS_ROOT{end}": "1" for end in ("", "_CONFIRM")}
    code, out, err = place.run(
        "echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE, $OMP_NUM_THREADS", cores=6,
        launcher="mpirun --oversubscribe", what={"cpus_per_task": 2},
    )  # fmt: skip
    assert code == 0, err
    assert sorted(out.splitlines()) == ["0 of 3, 2", "1 of 3, 2", "2 of 3, 2"]


SRUN = r"""printf '<%s>' "$@" >>"$SEEN"; while case $1 in --*) ;; *) false ;; esac; do shift; done; exec "$@" """


@pytest.mark.parametrize(
    ("cores", "what", "words"),
    [
        (8, {}, "<--ntasks=8><--cpus-per-task=1>"),
        (8, {"cpus_per_task": 4, "gpus": 4}, "<--ntasks=2><--cpus-per-task=4><--gpus-per-task=2>"),
        (8, {"cpus_per_task": 2, "gpus": 3}, "<--ntasks=4><--cpus-per-task=2>"),
    ],
)
def test_srun_lays_out_tasks_threads_and_gpus(container, cores, what, words):
    container.program("srun", SRUN)
    code, out, err = container.run("echo $IN", cores=cores, what=what, launcher="srun --label", container="docker://a")
    assert (code, out) == (0, "docker://a\n"), err
    assert "".join(seen(container)).startswith(f"{words}<--label>"), "the launcher is outside, the container inside"


# ---------------------------------------------------------------------- what is checked


def problems(tmp_path, text, **how):
    (tmp_path / "w.toml").write_text(text)
    return [
        (one.severity, one.line, one.message)
        for one in check_here(tmp_path / "w.toml", folder=tmp_path, **how)
        if one.severity != "note"
    ]


STAGE = '[[stage]]\nname = "s"\ncores = 2\ncommand = "{command}"\n{more}\n'


def test_a_launcher_within_a_launcher_is_an_error(tmp_path):
    text = 'name = "w"\n' + STAGE.format(command="srun -n 2 ./x", more='launcher = "srun"\nwalltime = "1h"')
    ((severity, line, words),) = [one for one in problems(tmp_path, text) if one[0] == "error"]
    assert (severity, line) == ("error", 6)
    assert "starts srun once per task" in words


def test_what_is_not_there_is_told_if_it_is_asked_for(tmp_path):
    text = 'name = "w"\n' + STAGE.format(command="true", more='container = "no.sif"\nwalltime = "1h"')
    assert problems(tmp_path, text) == []
    ((severity, line, words),) = problems(tmp_path, text, tries_environments=True)
    assert (severity, line) == ("warning", 6)
    assert "no.sif" in words or "neither apptainer" in words


def test_the_set_up_of_a_stage_is_not_run_by_a_check(tmp_path):
    text = 'name = "w"\n' + STAGE.format(command="true", more='setup = "touch ran"\nwalltime = "1h"')
    assert problems(tmp_path, text, tries_environments=True) == []
    assert not (tmp_path / "ran").exists()


def test_words_that_other_tools_have_lead_to_ours(tmp_path):
    (tmp_path / "w.toml").write_text('name = "w"\n' + STAGE.format(command="true", more='singularity = "a.sif"'))
    assert any("container" in problem.hint for problem in check_file(tmp_path / "w.toml"))


def test_workflows_with_environments_are_written_and_read_again(tmp_path):
    whole = Stage("s", cores=1, command="true", preparation=Preparation(conda="it's", setup="a\n'''\nb"))
    (tmp_path / "w.toml").write_text(write_workflow(Workflow("w", [whole])))
    assert load_workflow(tmp_path / "w.toml").stages["s"] == whole


def test_no_shell_finds_a_mistake_in_what_is_written(shell):
    said = Preparation(modules=("a",), conda="b.yml", setup=":", launcher="srun")
    for one in (said, Preparation(modules=("a",), container="c", binds=("/d",), setup=":")):
        text = payload_text(Stage("s", cores=1, command="true", preparation=one), 1)
        done = subprocess.run([shell, "-n", "-c", text], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), shlex.quote(text)
    assert os.environ.get("ASA_CONTAINER") is None

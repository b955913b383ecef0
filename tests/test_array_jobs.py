"""The script of an element of a job array: its number, its marks, and the completion marker of the whole."""

import os
import subprocess

import pytest
from asa.backends.shell.marks import MarksFolder
from asa.backends.shell.script import Payload, batch_script, facts_of, file_name
from asa.backends.slurm.commands.reading import QueueFormat, RecordFormat
from asa.backends.slurm.link import SlurmJob, read_number
from asa.backends.slurm.rest import reading

from asa.elements import Elements, parse_array
from asa.outcome import JobOutcome
from asa.payload import payload_text
from asa.preparation import Preparation
from asa.workflow import Stage

WHOLE = "run/b"
TELL = "echo $SLURM_ARRAY_TASK_ID:$ASA_ELEMENT:$SLURM_ARRAY_TASK_COUNT:$SLURM_ARRAY_TASK_MAX >>told"


class Array:
    """An array whose script is run here, element by element, as a batch system would."""

    def __init__(self, root, text, command="echo $SLURM_ARRAY_TASK_ID >>ran", *, token="t-0", only=None, **more):
        self.root, self.folder = root, MarksFolder(root)
        array = parse_array(text)
        payload = Payload(
            "b", command, str(root), self.folder.marks, self.folder.posts, token, posted=(WHOLE,),
            array=array.only(Elements.of(only)) if only else array, **more,
        )  # fmt: skip
        self.script = batch_script(payload, "SLURM_JOB_ID", (0,))

    def run(self, index, job="12"):
        numbers = {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": str(index), "SLURM_JOB_ID": f"9{job}{index}"}
        done = subprocess.run(
            ["sh"], input=self.script, text=True, env={**os.environ, **numbers}, cwd=self.root, timeout=60, check=False
        )
        return done.returncode

    @property
    def is_posted(self):
        return (self.root / "posts" / file_name(WHOLE)).exists()

    @property
    def ran(self):
        return (self.root / "ran").read_text().split() if (self.root / "ran").exists() else []


def test_the_whole_is_posted_once_the_last_element_has_completed(tmp_path):
    array = Array(tmp_path, "1-5:2", "[ $SLURM_ARRAY_TASK_ID -ne 3 ] || exit 4")
    assert [array.run(number) for number in (5, 3, 1)] == [0, 4, 0]
    assert not array.is_posted
    assert array.folder.ended("12_3", "t-0/e3").exit_code == 4
    assert array.folder.ended("12_1", "t-0/e1").exit_code == 0
    again = Array(tmp_path, "1-5:2", "true", token="t-1", only=[3])
    assert again.run(3, "15") == 0
    assert again.is_posted


def test_what_completed_is_not_run_again_whoever_begins_it(tmp_path):
    array = Array(tmp_path, "1-2")
    assert [array.run(1), array.run(1)] == [0, 0], "as when it was put back into the queue"
    assert Array(tmp_path, "1-2", token="t-1").run(1, "15") == 0, "nor in another job"
    assert array.ran == ["1"]


def test_of_two_arrays_of_a_token_one_runs_all_elements(tmp_path):
    array = Array(tmp_path, "1-2")
    assert [array.run(1, "12"), array.run(2, "13"), array.run(2, "12")] == [0, JobOutcome.DUPLICATE.exit_code, 0]
    assert array.ran == ["1", "2"]


def test_an_array_that_was_withdrawn_begins_no_element(tmp_path):
    array = Array(tmp_path, "1-2")
    assert array.folder.withdraw("t-0")
    assert array.run(1) != 0
    assert array.ran == []
    begun = Array(tmp_path / "other", "1-2")
    assert begun.run(1) == 0
    assert not begun.folder.withdraw("t-0"), "one has begun"
    assert begun.run(2) == 0


@pytest.mark.parametrize("text", ["1000-9000:1000", "5000-5003,7000,7001,9000-9010:5"])
def test_elements_that_are_counted_from_0_on_find_their_numbers(tmp_path, text):
    array = Array(tmp_path, text, is_renumbered=True)
    numbers = list(parse_array(text).elements)
    assert [array.run(place) for place in range(len(numbers))] == [0] * len(numbers)
    assert array.ran == list(map(str, numbers))
    assert array.is_posted
    assert array.run(len(numbers)) == 87, "there is no such element"
    facts = facts_of(array.script)
    assert (facts["array"], facts["is_renumbered"]) == (str(parse_array(text).elements), True)


def test_an_element_without_a_number_fails(tmp_path):
    script = Array(tmp_path, "1-2").script
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "12"}
    done = subprocess.run(["sh"], input=script, text=True, env=environment, cwd=tmp_path, check=False, timeout=60)
    assert done.returncode != 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("way", ["command", "script"])
def test_what_starts_it_without_variables_does_not_keep_its_number_from_it(tmp_path, way):
    """As `srun --export=NONE` does, and a container by `--cleanenv`."""
    srun = tmp_path / "srun"
    srun.write_text(
        '#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\nexec env -i "PATH=$PATH" "$@"\n'
    )
    srun.chmod(0o755)
    text = TELL if way == "command" else f"#!/bin/sh\n{TELL}\n"
    stage = Stage("b", cores=1, array=parse_array("1-9:2"), preparation=Preparation(launcher="srun"), **{way: text})
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "5"}
    command = ["sh", "-c", payload_text(stage, 1)]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "told").read_text() == "5:5:5:9\n"


@pytest.mark.parametrize(
    ("number", "code"), [(1, 0), (2, JobOutcome.INPUT_MISSING.exit_code), (3, JobOutcome.OUTPUT_MISSING.exit_code)]
)
def test_files_are_those_of_the_element(tmp_path, number, code):
    for there in (1, 3):
        (tmp_path / f"it's {there}.in").write_text("x")
    stage = Stage(
        "b", cores=1, array=parse_array("1-3"), inputs=("it's %a.in",), outputs=("%a.out",),
        command="[ $ASA_ELEMENT -eq 3 ] || echo x >$ASA_ELEMENT.out",
    )  # fmt: skip
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number), "ASA_LATENCY_S": "0"}
    done = subprocess.run(["sh", "-c", payload_text(stage, 1)], env=environment, cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == code


# ---------------------------------------------------------------------- what Slurm tells


@pytest.mark.parametrize(
    ("text", "elements"),
    [("5-9%2", "5-9"), ("1,3,5", "1-5:2"), ("1,3,...", None), ("1-9,", None), ("", None), ("N/A", None)],
)
def test_numbers_that_slurm_has_cut_off_are_not_taken_for_all(text, elements):
    found = read_number(f"12_[{text}]", waits=True)["elements"]
    assert (found and str(found)) == elements


@pytest.mark.parametrize(
    ("task", "is_array", "elements"), [("12_4", False, "4"), ("12_[5-9%2]", True, "5-9"), ("12_[7]", True, "7")]
)
def test_squeue_and_sacct_tell_which_elements_a_line_is_of(task, is_array, elements):
    form = QueueFormat(mark="@")
    fields = {"JobArrayID": task, "UserName": "me", "State": "PENDING", "SubmitTime": "1700000000", "exit_code": "0"}
    values = "|".join(fields.get(name, "0") for name in form._FIELDS)
    [record] = form.read(f"17@{values}|name@comment@")
    assert (record.job_id, record.array_id, str(record.elements), record.is_array) == ("17", "12", elements, is_array)
    form = RecordFormat(mark="@")
    fields = {"JobIDRaw": "17", "JobID": task, "State": "PENDING", "Submit": "1700000000", "ExitCode": "0:0"}
    [record] = form.read("".join(f"{fields.get(name, '')}@" for name in form._FIELDS))
    assert (record.job_id, record.array_id, str(record.elements), record.is_array) == ("17", "12", elements, is_array)


NUMBER = {"set": True, "infinite": False, "number": 12}
NONE = {"set": False, "infinite": False, "number": 0}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"array_job_id": 12, "array_task_id": 4, "array_task_string": ""}, ("12", "4", False)),
        ({"array_job_id": 12, "array_task_id": None, "array_task_string": "5-9%2"}, ("12", "5-9", True)),
        (
            {"array_job_id": NUMBER, "array_task_id": NUMBER | {"number": 4}, "array_task_string": ""},
            ("12", "4", False),
        ),
        ({"array_job_id": NUMBER, "array_task_id": NONE, "array_task_string": "5-9%2"}, ("12", "5-9", True)),
        ({"array_job_id": 0, "array_task_id": None, "array_task_string": None}, ("", "None", False)),
        ({"array_job_id": NUMBER | {"number": 0}, "array_task_id": NONE, "array_task_string": ""}, ("", "None", False)),
    ],
)
def test_the_rest_api_tells_which_elements_a_job_is_of(fields, told):
    record = reading.record({"job_id": 17, "name": "x", "job_state": "PENDING", "submit_time": 1700000000, **fields})
    assert (record.array_id, str(record.elements), record.is_array) == told


def test_each_element_has_an_output_of_its_own():
    job = SlurmJob("n", "#!/bin/sh\n", "/f", cores=1, walltime_s=60.0, stdout="/a%b.c/o.out", stderr="/e", array="1-4")
    assert job.output_of(job.stdout) == "/a%%b.c/o-e%a.out"

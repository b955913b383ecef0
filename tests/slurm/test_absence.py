"""Real daemons whose answers arrive empty, cut off or in part: no stage runs twice, none is believed to have ended."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from asa.backends.slurm import absence
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.rest import RestLink
from slurm_runs import LINKS, SlurmRun, stage
from slurm_testbed import until

from asa.elements import parse_array

WAYS = ("empty", "cut", "other partition")
# what comes of squeue, and of sacct where accounting is to say nothing either
WRAPPER = """#!/bin/sh
here={here}
case " $* " in
  *" squeue "*) [ -e "$here/faulty" ] || exec "$@"; way='{way}';;
  *" sacct "*) [ -e "$here/silent" ] || exec "$@"; way=empty;;
  *) exec "$@";;
esac
echo x >>"$here/asked"
case $way in
  empty) exit 0 ;;
  cut) out=$("$@"; echo .); printf %s "$out" | head -c $((${{#out}} / 2)) ;;
  *) exec "$@" -p debug ;;
esac
"""


class Faulty(httpx.BaseTransport):
    """A transport to slurmrestd whose answers about jobs are damaged while a file exists."""

    def __init__(self, slurm, here, way):
        self._inner = httpx.HTTPTransport(uds=slurm.socket, verify=False)
        self._here, self._way = here, way

    def handle_request(self, request):
        answer = self._inner.handle_request(request)
        path = request.url.path
        at_database = path.startswith("/slurmdb")
        is_asked = request.method == "GET" and "/job" in path
        if not is_asked or not (self._here / ("silent" if at_database else "faulty")).exists():
            return answer
        with (self._here / "asked").open("a") as file:
            file.write("x\n")
        document = json.loads(answer.read())
        answer.close()
        text = json.dumps(document if at_database or self._way == "cut" else document | {"errors": []})
        if self._way == "cut" and not at_database:
            return httpx.Response(200, content=text[: len(text) // 2])
        others = [] if self._way == "empty" else [j for j in document.get("jobs", ()) if j.get("partition") == "debug"]
        return httpx.Response(200, json=document | {"jobs": others, "errors": []})

    def close(self):
        self._inner.close()


def faulty_run(slurm, link, way, array):
    """Begin a run over a transport whose answers can be made faulty."""
    elements = parse_array(array) if array else None
    first = stage("a", then="until [ -e go ]; do sleep 0.5; done", retries=1, array=elements)
    stages = [first, stage("b", "a", retries=1)]
    run = SlurmRun(slurm, stages, link=link)
    if link == "rest":
        return run, run.client(connect=run.connect_over(Faulty(slurm, run.place, way)))
    wrapper = run.place / "wrapper"
    wrapper.write_text(WRAPPER.format(here=run.place, way=way))
    wrapper.chmod(0o755)
    run.plan.settings["prefix"] = (str(wrapper), *slurm.prefix)
    return run, run.client()


@pytest.mark.parametrize("accounting", ["accounting", "no accounting"])
def test_no_stage_runs_twice_whatever_is_not_shown(slurm, monkeypatch, accounting):
    """Jobs are not shown for longer than it takes until they count as gone; one runs, and another waits for it."""
    monkeypatch.setattr(absence, "_GRACE_S", 3.0)
    ways = [(link, way, "") for link in LINKS for way in WAYS] + [(link, "empty", "0-1") for link in LINKS]
    with ThreadPoolExecutor(len(ways)) as threads:
        begun = list(threads.map(lambda how: faulty_run(slurm, *how), ways))
    for run, client in begun:
        client.sees_running("a")
        until(lambda run=run: run.ran["a"], what="its begin")
    for run, _ in begun:
        if accounting == "no accounting":
            (run.place / "silent").touch()
        (run.place / "faulty").touch()
    time.sleep(9.0)
    for run, _ in begun:
        asked = run.place / "asked"
        until(lambda asked=asked: asked.exists() and asked.read_text().count("x") > 3, what="the fourth faulty answer")
    for run, client in begun:
        state = run.folder.state()[0]
        assert [view.phase.value for view in state.stages.values()] == ["running", "queued"], client.run.link
        (run.place / "faulty").unlink()
        (run.place / "go").touch()
    for run, client in begun:
        client.result()
        count = 2 if run.plan.stages[0].array else 1
        assert {name: len(jobs) for name, jobs in run.jobs().items()} == {"a": count, "b": 1}
        run.check(a=count)


def test_the_controller_denies_only_what_it_does_not_know(slurm):
    job = slurm.run("sbatch", "--parsable", "--hold", "--chdir=/tmp", "--output=/dev/null", "--wrap", "true").strip()
    theirs = slurm.run_as_root("sbatch", "--parsable", "--hold", "--chdir=/tmp", "--output=/dev/null", "--wrap", "true")
    links = CommandLink(prefix=tuple(slurm.prefix)), RestLink(f"unix://{slurm.socket}")
    for link in links:
        assert [link.denies(one) for one in (job, theirs.strip(), "99999")] == [False, False, True]
        link.close()
    slurm.run_as_root("scancel", job, theirs.strip())

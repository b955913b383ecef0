"""Everything that asa reads: for each kind of input, valid samples, and what reads them.

A reader may refuse input with an `AsaError`, or with what its description names (`refusals`); nothing else. One that
reads a file finds it at the path that it gets, next to what `provide` has put there.
"""

import contextlib
import gzip
import hashlib
import io
import json
import random
import re
import shlex
import shutil
import struct
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cli_fuzz import FLOW, SACCT, SCRIPT, SITE, SWF, TRACE, WFFORMAT

from asa.errors import AsaError, BackendError, InputError
from fuzz.mutation import CANARY

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
KEPT = TESTS / "data" / "fuzz"
"""For each reader a folder of input that it once got wrong, or that is hard to come by."""


@dataclass(frozen=True)
class Reader:
    """What reads one kind of input."""

    name: str
    samples: Callable[[], list]
    read: Callable[[Path, bytes], object]
    file: str = "input"  # what the file with the input is called, below the folder of an input
    words: Callable[[], tuple] = tuple  # that mean something in it
    refusals: tuple = (AsaError,)
    seal: Callable[[bytes], bytes] | None = None  # what makes changed input pass for sound, as by a checksum
    programs: tuple = ()  # names of programs that it may start: all others are a finding
    provide: Callable[[Path], None] = lambda folder: None


READERS: dict[str, Reader] = {}


def _reader(name, samples, words=tuple, **options):
    """Add the function below to the readers."""

    def add(read):
        READERS[name] = Reader(name, samples, read, words=words, **options)
        return read

    return add


def kept(name):
    """Return the kept input of a reader."""
    return [content(file) for file in sorted((KEPT / name.replace(" ", "-")).glob("*"))]


def content(file):
    """Return the input that a file holds; a large one is packed."""
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


def _sample(name):
    return (KEPT / "samples" / name).read_text()


def of_text(*texts):
    """Make samples of texts."""
    return lambda: [text.encode() if isinstance(text, str) else text for text in texts]


def command(*words):
    """Run a command of asa in this process, as `asa` would; return what it printed."""
    from asa.cli import app
    from asa.core import owned

    printed = io.StringIO()
    own_up, app._own_up = app._own_up, _raised
    argv, sys.argv = sys.argv, ["asa", *map(str, words)]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            app.run_command()
    except SystemExit as end:
        if end.code not in {None, 0, 1, 2, 3}:
            raise AssertionError(f"exit code {end.code}: {printed.getvalue()[-500:]}") from None
    finally:
        app._own_up, sys.argv = own_up, argv
        owned.others.clear()
    text = printed.getvalue()
    if "Traceback (most" in text or "a bug in asa" in text:
        raise AssertionError(text[-1500:])
    return text


def _raised(error):
    raise error


def _choice(data, *choices):
    """Choose by the input itself, so that the same input is always read in the same way."""
    return choices[zlib.crc32(data) % len(choices)]


# ---------------------------------------------------------------------- workflow files and sites


def _files(*patterns):
    return [file.read_bytes() for pattern in patterns for file in sorted(ROOT.glob(pattern)) if file.is_file()]


@cache
def _keys_of_workflows():
    from asa.spec.model import StageSpec, WorkflowSpec

    return (
        *StageSpec.model_fields,
        *WorkflowSpec.model_fields,
        "[[stage]]",
        "[defaults]",
        "[parameters]",
        "after",
        "{{p}}",
    )


def _whole_stage():
    """Return a file with every key that a schema's example or type gives a value for."""
    schema = json.loads((ROOT / "asa" / "workflow.schema.json").read_text())
    definitions = schema.get("$defs", {})
    lines = ['name = "all"', "[[stage]]", 'name = "s"', 'command = "true"', "cores = 1", 'walltime = "1h"']
    for key, about in (
        next((one for name, one in definitions.items() if "tage" in name), {}).get("properties", {}).items()
    ):
        value = about.get("default", (about.get("examples") or ["1"])[0])
        if key not in {"name", "command", "cores", "walltime"} and not isinstance(value, dict) and value is not None:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines).encode()


def _flows():
    more = '[parameters]\np = "x"\n[defaults]\nretries = 2\nenvironment = { A = "{{p}}" }\n'
    rest = _sample("stages.toml")
    return [
        FLOW.encode(),
        (FLOW.replace("[[stage]]", more + "[[stage]]", 1) + rest).encode(),
        _whole_stage(),
        *_files(
            "examples/*.toml",
            "examples/*/*.toml",
            "tests/golden/data/flow.toml",
        ),
    ]


@_reader(
    "workflow",
    _flows,
    _keys_of_workflows,
    file="flow.toml",
    provide=lambda folder: (folder / "job.sh").write_text(SCRIPT),
)
def _workflow(path, _data):
    from asa.spec import check_file, load_workflow, parameters_of, write_workflow

    errors = [problem for problem in check_file(path) if problem.severity == "error"]
    assert all(problem.message for problem in errors)
    try:
        workflow = load_workflow(path)
    except InputError:
        assert errors, "refused, and nothing is wrong with it"
        workflow = None
    else:
        assert not errors, f"read, and {errors[0].message}"
    with contextlib.suppress(InputError):
        parameters_of(path)
    if workflow is not None and "{{" not in (text := write_workflow(workflow)):
        again = path.with_name("again.toml")
        again.write_text(text, encoding="utf-8", errors="surrogateescape")
        assert load_workflow(again).stages.keys() == workflow.stages.keys()
        again.unlink()


@_reader(
    "workflow command",
    _flows,
    _keys_of_workflows,
    file="flow.toml",
    programs=("sh", "bash", "dash", "zsh"),
    provide=lambda folder: (folder / "job.sh").write_text(SCRIPT),
)
def _workflow_command(path, data):
    command(
        *_choice(
            data,
            ("check", path, "--site"),
            ("check", path, "--output", "json"),
            ("show", path),
            ("export", "wfformat", path),
            ("run", path, "--dry-run", "--scripts", "--backend", "local", "--bank", "none"),
            ("walltimes", path, "--bank", "none", "--backend", "local"),
        )
    )


_WHOLE_SITE = _sample("site.toml")
_REST_SITE = _sample("rest.toml")


@cache
def _keys_of_sites():
    from asa.backends.slurm.settings import CommandSettings, RestSettings

    return (
        *CommandSettings.model_fields,
        *RestSettings.model_fields,
        "backend",
        "[observed]",
        "slurm-rest",
        "local",
        "simulated",
    )


@_reader(
    "site",
    lambda: [SITE.encode(), _WHOLE_SITE.encode(), _REST_SITE.encode(), *_files("tests/golden/data/sites/*")],
    _keys_of_sites,
    file="site.toml",
)
def _site(path, _data):
    from asa.sites import open_facility

    facility = open_facility(site=str(path)).facility
    str(getattr(facility, "notes", ""))


# ---------------------------------------------------------------------- logs, models, results


def _some(text, count):
    return "\n".join(text.splitlines()[:count]) + "\n"


_SWF_HEADS = _sample("heads.swf")


@_reader(
    "swf",
    of_text(_some(SWF, 12), _SWF_HEADS + _some(SWF, 30)),
    lambda: ("; MaxProcs: ", "; MaxNodes: ", "-1", "; Note: "),
    file="log.swf",
)
def _swf(path, data):
    from asa.backends.simulated.swf import read_history, read_swf

    for exceed in ("raise", "kill", "keep") if zlib.crc32(data) % 2 else ("raise",):
        with contextlib.suppress(AsaError):
            read_swf(path, exceed=exceed)
    read_history(path)


_SACCT_LONG = _sample("sacct.txt")


@_reader(
    "sacct file",
    of_text(_some(SACCT, 12), _SACCT_LONG),
    lambda: ("Unknown", "None", "CANCELLED by 1", "JobIDRaw|", "UNLIMITED"),
    file="jobs.txt",
)
def _sacct_file(path, _data):
    from asa.backends.slurm.accounting import read_history

    read_history(path)


@_reader("history", of_text(_some(SACCT, 12), _some(SWF, 12)), file="jobs.txt")
def _history(path, _data):
    from asa.history import read_history

    read_history(path)


def _sealed(data):
    """Give a saved comparison a checksum that fits."""
    text, mark, _ = data.decode("utf-8", "replace").strip().rpartition(', "check": "')
    text = f"{text}}}" if mark else text
    return f'{text[:-1]}, "check": "{hashlib.sha256(text.encode()).hexdigest()[:16]}"}}'.encode()


@_reader("results", lambda: [*_files("tests/golden/data/results.json")], file="results.json", seal=_sealed)
def _results(path, data):
    from asa.studies.compare.kept import KeptComparison

    kept = KeptComparison.read(path)
    if zlib.crc32(data) % 4 == 0:
        kept.page()


@cache
def _model_file():
    """Return a model as a command makes it of a log."""
    with tempfile.TemporaryDirectory() as folder:
        log, made = Path(folder, "log.swf"), Path(folder, "model.json")
        log.write_text(SWF)
        command("workload", "fit", log, "--out", made)
        return made.read_bytes()


@_reader("model", lambda: [_model_file()], file="model.json")
def _model(path, _data):
    from asa.backends.simulated.model_file import load_model

    load_model(path)


def _provide_twin(folder):
    shutil.copytree(KEPT / "samples" / "twin", folder / "twin")


@_reader("twin", lambda: _files("tests/data/fuzz/samples/twin/twin.json"), file="twin/twin.json", provide=_provide_twin)
def _twin(path, _data):
    from asa.backends.twin.model import Twin

    Twin.read(path.parent)


def _with_crcs(data):
    """Give each file of an archive a checksum that fits."""
    whole = bytearray(data)
    with contextlib.suppress(zipfile.BadZipFile, struct.error, ValueError, NotImplementedError):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            at, files = archive.start_dir, archive.infolist()
        for info in files:
            start = info.header_offset + 30 + sum(struct.unpack_from("<HH", data, info.header_offset + 26))
            struct.pack_into("<I", whole, at + 16, zlib.crc32(data[start : start + info.file_size]))
            at += 46 + sum(struct.unpack_from("<HHH", data, at + 28))
    return bytes(whole)


@cache
def _small_agent():
    """Return the agent that comes with asa, with its largest arrays cut: most changes meet what describes them."""
    from asa.backends.dras.weights import read_file, write_file

    header, arrays = read_file(ROOT / "backends/dras/agent.npz")
    with tempfile.TemporaryDirectory() as folder:
        write_file(Path(folder, "agent.npz"), header, {name: array[:2] for name, array in arrays.items()})
        return Path(folder, "agent.npz").read_bytes()


@_reader(
    "agent",
    lambda: [(ROOT / "backends/dras/agent.npz").read_bytes(), _small_agent()],
    lambda: ("<f8", "|O", "(2,)", "fortran_order", "descr", "1e999"),
    seal=_with_crcs,
    file="agent.npz",
)
def _agent(path, _data):
    from asa.backends.dras.weights import load_agent

    load_agent(path)


@_reader("outages", of_text("begin_s,end_s,cores,drain\n3600,7200,28,no\n0,,4,yes\n"), file="outages.csv")
def _outages(path, _data):
    from asa.backends.simulated.cluster import read_outages

    read_outages(path)


_CCS = _sample("system.toml")
_CCS_LIMITS = _sample("limits.toml")


@_reader("ccs system", of_text(_CCS), file="system.toml")
def _ccs_system(path, _data):
    from asa.backends.openccs.system import load_system

    load_system(path)


@_reader("ccs limits", of_text(_CCS_LIMITS), file="limits.toml")
def _ccs_limits(path, _data):
    from asa.backends.openccs.limits_file import load_limits

    load_limits(path)


# ---------------------------------------------------------------------- files of other workflow managers


def _as_file(imported, path):
    """Write an imported workflow as a command would, and read it."""
    from asa.importers import as_toml
    from asa.spec import load_workflow, write_workflow

    text = as_toml(imported, path.parent, write_workflow)
    again = path.with_name("imported.toml")
    again.write_bytes(text.encode())
    try:
        made = load_workflow(again)
        assert made.stages.keys() == imported.workflow.stages.keys(), "it has other stages as a file"
    finally:
        again.unlink()


_WFFORMAT_14 = _sample("instance-1.4.json")


@_reader(
    "wfformat",
    of_text(WFFORMAT, _WFFORMAT_14),
    lambda: (
        "parents",
        "children",
        "runtimeInSeconds",
        "coreCount",
        "command",
        "inputFiles",
        "outputFiles",
        "1.4",
        "1.5",
    ),
    file="instance.json",
)
def _wfformat(path, data):
    from asa.importers.wfformat import import_wfformat

    _as_file(import_wfformat(path, by=_choice(data, "category", "level", "chains")), path)


_TRACE_LONG = _sample("trace.txt")


@_reader(
    "nextflow trace",
    of_text(TRACE, _TRACE_LONG),
    lambda: ("COMPLETED", "CACHED", "realtime", "cpus", "peak_rss", "2m 3s", "1 GB"),
    file="trace.txt",
)
def _nextflow_trace(path, _data):
    from asa.importers.nextflow import import_nextflow

    _as_file(import_nextflow(path), path)


_CONFIG = _sample("nextflow.config")


def _provide_trace(folder):
    (folder / "trace.txt").write_text(_sample("short-trace.txt"))
    (folder / "other.config").write_text("process.cpus = 2\nincludeConfig 'nextflow.config'\n")


@_reader(
    "nextflow config",
    of_text(_CONFIG),
    lambda: ("withName:", "withLabel:", "process", "cpus", "includeConfig", "{", "}"),
    file="nextflow.config",
    provide=_provide_trace,
)
def _nextflow_config(path, _data):
    from asa.importers.nextflow import import_nextflow

    import_nextflow(path.with_name("trace.txt"), config=path)


_DOT = _sample("dag.dot")
_MERMAID = _sample("dag.mmd")


@_reader(
    "nextflow dag",
    of_text(_DOT, _MERMAID, f"<html><pre class='mermaid'>\n{_MERMAID}</pre></html>"),
    lambda: ("-->", "->", "subgraph", "[label="),
    file="dag.mmd",
    provide=_provide_trace,
)
def _nextflow_dag(path, _data):
    from asa.importers.nextflow import import_nextflow

    import_nextflow(path.with_name("trace.txt"), dag=path)


_RULES = _sample("rules.dot")
_DRY = _sample("jobs.txt")


@_reader("snakemake rules", of_text(_RULES), lambda: ("->", "label", "[", "]"), file="rules.dot")
def _snakemake_rules(path, _data):
    from asa.importers.snakemake import import_snakemake

    _as_file(import_snakemake(path), path)


@_reader(
    "snakemake jobs",
    of_text(_DRY),
    lambda: ("threads: ", "resources: ", "mem_mb=", "runtime=", "rule ", "checkpoint "),
    file="jobs.txt",
    provide=lambda folder: (folder / "rules.dot").write_text(_RULES),
)
def _snakemake_jobs(path, _data):
    from asa.importers.snakemake import import_snakemake

    _as_file(import_snakemake(path.with_name("rules.dot"), jobs=path), path)


_BATCH = _sample("batch.sh")
_SOME_BYTES = 4000  # of a long script, as each byte takes its time


@cache
def _options_of_sbatch():
    from asa.requests.options import OPTIONS

    return (*(f"--{name}=" for name in OPTIONS), "#SBATCH ", "#SBATCH --array=", "%A", "%a", "# asa: after=")


@_reader(
    "batch script",
    lambda: [SCRIPT.encode(), _BATCH.encode(), *(text[:_SOME_BYTES] for text in _files("tests/data/scripts/*.sh"))],
    _options_of_sbatch,
    file="job.sh",
    programs=("scontrol",),
)
def _batch_script(path, data):
    from asa.importers.scripts import import_scripts

    _as_file(import_scripts([path], pack_arrays=bool(zlib.crc32(data) % 2)), path)


_DRIVER = _sample("driver.sh")
_DRIVER_PLAIN = _sample("plain-driver.sh")


def _provide_scripts(folder):
    for name in ("a.sh", "b.sh"):
        (folder / name).write_text(SCRIPT)


@_reader(
    "driver script",
    of_text(_DRIVER, _DRIVER_PLAIN),
    lambda: ("sbatch ", "--parsable", "--dependency=afterok:$", "$(", "a.sh", "b.sh", "fi", "done", "<<E"),
    file="driver.sh",
    provide=_provide_scripts,
    programs=("scontrol",),
)
def _driver_script(path, _data):
    from asa.importers.scripts import import_scripts

    _as_file(import_scripts([path]), path)


# ---------------------------------------------------------------------- runs and banks


@cache
def _archive():
    """Return the kept runs and banks, by their paths."""
    archive = max((TESTS / "data" / "kept").glob("*.tar.xz"))
    with tarfile.open(archive) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar if one.isfile() and one.size < 200_000}


def _runs():
    """Return runs: the plan on one line, and then the journal."""
    found = []
    for name, plan in _archive().items():
        folder, _, file = name.rpartition("/")
        if file == "run.json" and f"{folder}/journal.jsonl" in _archive():
            whole = (
                json.dumps(json.loads(plan), separators=(",", ":")).encode()
                + b"\n"
                + _archive()[f"{folder}/journal.jsonl"]
            )
            if len(whole) < 40_000:
                found.append(whole)
    found.sort(key=len)
    return found[:: max(len(found) // 14, 1)]


@cache
def _words_of_journals():
    from asa.runner.entries import _KINDS

    return tuple(_KINDS)


def _put_run(path, data):
    plan, _, journal = data.partition(b"\n")
    if data:  # else the journal is something else than a file
        path.write_bytes(journal)
    path.with_name("run.json").write_bytes(plan)
    return path.parent


@_reader("run", _runs, _words_of_journals, file="runs/r-20260101-000000-abcd/journal.jsonl")
def _run(path, data):
    from asa.cli.standing import standing_of
    from asa.runner import RunFolder

    folder = RunFolder(_put_run(path, data))
    folder.state()
    standing_of(folder, 1_800_000_000.0)


@_reader("run command", _runs, _words_of_journals, file="runs/r-20260101-000000-abcd/journal.jsonl")
def _run_command(path, data):
    run = _put_run(path, data)
    stage = re.search(rb'"stages?":\[?"(\w+)"', data)
    name = stage[1].decode() if stage else "tried"
    command(
        *_choice(
            data,
            ("status", run),
            ("status", run, "--output", "json"),
            ("explain", "--run", run),
            ("explain", name, "--run", run),
            ("logs", name, "--run", run),
            ("report", run, "--out", path.parents[2] / "page.html"),
            ("runs", "--runs", run.parent),
            ("runs", "--runs", run.parent, "--all", "--output", "json"),
            ("export", "wfformat", "--run", run),
            ("report", run, "--csv", path.parents[2] / "x.csv", "--out", path.parents[2] / "page.html"),
        )
    )


def _banks(ending):
    def samples():
        return [
            content[:20_000]
            for name, content in _archive().items()
            if name.startswith("banks/") and name.endswith(ending)
        ]

    return samples


def _segments():
    return [
        content
        for name, content in _archive().items()
        if name.startswith("banks/") and name.endswith(".jsonl") and "/runtimes/" not in name
    ]


def _with_checksums(data):
    """Give each line of a bank a checksum that fits."""
    lines = []
    for line in data.split(b"\n"):
        body, comma, _ = line.rpartition(b',"check":' if line.startswith(b"{") else b",")
        check = str(zlib.crc32(body)).encode()
        ending = b',"check":%s}' % check if line.startswith(b"{") else b",%s]" % check
        lines.append(body + ending if comma else line)
    return b"\n".join(lines)


@_reader("bank", _segments, seal=_with_checksums, file="bank/live-here.0-1-5586813d811e3eeb.jsonl")
def _bank(path, data):
    from asa.estimators.store import WaitStore

    with WaitStore(path.parent) as store:
        records = store.read()
        store.widest("here")
        assert len(records) <= data.count(b"\n") + 1
        if zlib.crc32(data) % 4 == 0:
            store.export(path.parent / "out.gz")
            other = path.parents[1] / "other"
            with WaitStore(other) as copy:
                copy.import_(path.parent / "out.gz")


def _exported():
    return [gzip.decompress(content) for name, content in _archive().items() if name == "banks/export.jsonl.gz"]


@_reader("exported bank", _exported, file="export.jsonl")
def _exported_bank(path, data):
    from asa.estimators.store import WaitStore

    if zlib.crc32(data) % 4 == 1:
        path.write_bytes(gzip.compress(data, 1))
    with WaitStore(path.parent / "bank") as store:
        store.import_(path)


@_reader(
    "run times",
    lambda: [c for n, c in _archive().items() if "/runtimes/" in n],
    file="bank/runtimes/all-5d3cfb174578d207.jsonl",
)
def _run_times(path, _data):
    from asa.runtimes import RunTimes

    times = RunTimes(path.parents[1])
    for run in times.read()[:5]:
        times.forecast(run.workflow, run.stage, 4)


@_reader("bank command", _segments, seal=_with_checksums, file="bank/live-here.0-1-5586813d811e3eeb.jsonl")
def _bank_command(path, data):
    bank = path.parent
    command(
        *_choice(
            data,
            ("bank", "show", "--bank", bank),
            ("predict", "--cores", "1", "--bank", bank, "--bank-only", "--system", "here"),
            ("bank", "export", bank / "x.gz", "--bank", bank),
            ("bank", "forget", "--system", "here", "--bank", bank),
        )
    )


# ---------------------------------------------------------------------- what a job leaves


_SCRIPT_OF_A_JOB = next(iter(_files("tests/golden/data/runs/flow/scripts/flow_split*.sh")), b"")


@_reader(
    "job script",
    lambda: _files("tests/golden/data/runs/flow/scripts/*.sh"),
    refusals=(AsaError, ValueError),
    file="job.sh",
)
def _job_script(_path, data):
    from asa.backends.shell.script import facts_of

    facts_of(data.decode("utf-8", "replace"))


@_reader(
    "marks",
    lambda: [*_files("tests/golden/data/runs/flow/marks/*/began", "tests/golden/data/runs/flow/marks/*/ended")],
    lambda: ("\n", "job ", "exit ", "time "),
    file="run/marks/t-1-0/ended",
)
def _marks(path, data):
    from asa.backends.shell.marks import MarksFolder

    if data:
        path.with_name("began").write_bytes(data)
    folder = MarksFolder(path.parents[2])
    job_id = (re.search(rb"\d+", data) or [b"1"])[0].decode()
    folder.began(job_id, "t-1-0")
    folder.ended(job_id, "t-1-0")
    folder.steps(job_id, "t-1-0", 2)


@_reader(
    "job record",
    lambda: (
        [c for n, c in _archive().items() if re.search(r"/jobs/\d+$", n)][:8]
        + _files("tests/golden/data/runs/flow/jobs/*")
    ),
    file="run/jobs/1",
)
def _job_record(path, _data):
    from asa.backends.shell.marks import MarksFolder

    folder = MarksFolder(path.parents[1])
    folder.kept_job("1")
    folder.job_ids()


# ---------------------------------------------------------------------- answers of Slurm

_HEAD = re.compile(rb"(?m)^==> (\w+) ?(-?\d*) <==\n")
_MARK, _TOKEN = "@MARK@", "aaaabbbbcccc-1-0"
_CONF = _sample("config.txt")
_PARTS = _sample("partitions.txt")
_NODES = _sample("nodes.txt")
_LIMITS = _sample("associations.txt")
_QUALITY = _sample("qualities.txt")


def _queued(job_id, state="PENDING", name=f"a.{_TOKEN}", array="", reason="Priority", **more):
    fields = {
        "JobArrayID": array or job_id,
        "UserName": "me",
        "State": state,
        "Reason": reason,
        "SubmitTime": "1700000000",
        "EligibleTime": "1700000000",
        "AccrueTime": "1700000000",
        "StartTime": "1700000100",
        "EndTime": "1700003700",
        "TimeLimit": "1:00:00",
        "NumCPUs": "4",
        "NumNodes": "1",
        "NodeList": "" if state == "PENDING" else "n1",
        "Partition": "p",
        "exit_code": "0:0",
        "RestartCnt": "0",
        "Dependency": "(null)",
    } | more
    return f"{job_id}{_MARK}{''.join(f'{value}|' for value in fields.values())}{name}{_MARK}{_TOKEN}{_MARK}\n"


def _accounted(job_id, state="COMPLETED", name=f"a.{_TOKEN}", **more):
    fields = {
        "JobIDRaw": job_id,
        "JobID": job_id,
        "User": "me",
        "State": state,
        "Submit": "1700000000",
        "Eligible": "1700000000",
        "Start": "1700000100",
        "End": "1700000200",
        "TimelimitRaw": "60",
        "ReqCPUS": "4",
        "AllocCPUS": "4",
        "NNodes": "1",
        "NodeList": "n1",
        "Partition": "p",
        "ExitCode": "0:0",
        "JobName": name,
        "Comment": _TOKEN,
    } | more
    return "".join(f"{value}{_MARK}" for value in fields.values()) + "\n"


def _answers(**programs):
    return "".join(f"==> {program} 0 <==\n{text}" for program, text in programs.items()).encode()


_SQUEUE = (
    _queued("7")
    + _queued("8", "RUNNING", "b.x")
    + _queued("9", array="9_[1-3%2]", name="arr")
    + _queued("11", "RUNNING", array="9_4", name="arr")
)
_QUEUES = lambda: [  # noqa: E731 - as those below
    _answers(squeue=_SQUEUE, scontrol=_CONF, sacct=_accounted("7")),
    _answers(squeue=_queued("7", "RUNNING")),
    _answers(squeue=_queued("7", "COMPLETED")),
    _answers(squeue=_queued("7", "CANCELLED", NodeList="", Reason="DependencyNeverSatisfied"), scontrol=_CONF),
    b"==> squeue 1 <==\n!slurm_load_jobs error: Invalid job id specified\n==> sacct 0 <==\n"
    + _accounted("7", "TIMEOUT").encode(),
    b"==> squeue 1 <==\n!slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
    b"==> squeue 1 <==\n!squeue: unrecognized option '--local'\n==> squeue 0 <==\n" + _queued("7").encode(),
]
_STATES = lambda: (  # noqa: E731
    *(
        "PENDING",
        "RUNNING",
        "COMPLETED",
        "CANCELLED",
        "TIMEOUT",
        "NODE_FAIL",
        "REQUEUED",
        "COMPLETING",
        "SUSPENDED",
        "CONFIGURING",
        "OUT_OF_MEMORY",
    ),
    *(
        "PREEMPTED",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "DependencyNeverSatisfied",
        "JobHeldUser",
        "Unknown",
        "N/A",
        "(null)",
        "UNLIMITED",
        "9_[1-99999999]",
        _MARK,
    ),
    *(
        "==> squeue 1 <==\n!",
        "==> sacct 0 <==\n",
        "9_1",
        "2:0",
        "0:15",
        "n[1-4]",
        "afterok:7(unfulfilled)",
        _TOKEN,
        "7",
    ),
)


class Answers:
    """Slurm's commands as a file tells them: sections ``==> PROGRAM EXIT-CODE <==``, each taken in turn.

    A line of a section that begins with an exclamation mark is of the error output. A command that has no section left
    prints nothing. What is run is noted, and judged: no text of an answer may become an option, or anything of a shell.
    """

    def __init__(self, data):
        heads = list(_HEAD.finditer(data))
        self._sections = {}
        for head, after in zip(heads, [*heads[1:], None][: len(heads)], strict=True):
            text = data[head.end() : after.start() if after else len(data)].decode("utf-8", "replace")
            self._sections.setdefault(head[1].decode(), []).append(
                (int((head[2] or b"0")[:9] or b"0") if head[2] != b"-" else 0, text)
            )
        self._mark = ""

    def __call__(self, words, stdin, _timeout_s):
        from asa.backends.slurm.commands import Done

        self._judge(words, stdin)
        program = next((word for word in words if word in self._sections), "")
        sections = self._sections.get(program)
        if not sections:
            return Done(0)
        code, text = sections.pop(0) if len(sections) > 1 else sections[0]
        for before, word in zip(["", *words], words, strict=False):
            if before == "-O":
                self._mark = re.match(r"JobID:0(@\w+@)", word)[1]
            elif word.startswith("--delimiter="):
                self._mark = word.partition("=")[2]
        lines = text.replace(_MARK, self._mark or _MARK).splitlines(keepends=True)
        said = "".join(line[1:] for line in lines if line.startswith("!"))
        return Done(code % 256, "".join(line for line in lines if not line.startswith("!")), said)

    def _judge(self, words, stdin):
        from asa.backends.slurm.commands.writing import through

        for word in words:
            assert "\0" not in word, words
            assert not word.startswith((f"--{CANARY}", f"-o{CANARY}")), f"text of an answer became an option: {words}"
        if CANARY in " ".join(words):
            [quoted] = through(("ssh", "h"), words, remote_shell=True)[2:]
            assert shlex.split(quoted) == list(words), f"a shell at the other end reads it otherwise: {words}"
        assert CANARY not in stdin, "text of an answer became part of a script"


@cache
def _job():
    from asa.backends.slurm.link import SlurmJob

    return SlurmJob(f"a.{_TOKEN}", "#!/bin/sh\ntrue\n", "/f", cores=1, walltime_s=60, stdout="/o", stderr="/e")


def _identified():
    from asa.backends.slurm.link import IdentifiedJob

    return [IdentifiedJob("7", f"a.{_TOKEN}"), IdentifiedJob("8", "b.x")]


def _ask_all(link, data):
    """Ask a link everything, each method by itself."""
    calls = (
        lambda: link.jobs(["7", "8", "9"]),
        lambda: link.holders(["7", "9"]),
        lambda: link.denies("7"),
        lambda: link.of_anybody("7"),
        lambda: link.past_holders(["7"]),
        link.queue,
        lambda: link.named([f"a.{_TOKEN}", "b.x"]),
        lambda: link.recorded(["b.x"], 0.0),
        lambda: link.past(["7", "9"]),
        lambda: link.accounting(1.7e9, 1.7e9 + 86400.0),
        link.about,
        link.cluster,
        link.settings,
        lambda: link.limits("c"),
        link.partitions,
        link.nodes,
        link.clusters,
        lambda: link.submit(_job()),
        lambda: link.estimated_start_s(_job()),
        lambda: link.test(_job(), 5.0),
        lambda: link.cancel(_identified()),
        lambda: link.update(_identified()[0], held=True, walltime_s=60.0),
    )
    for call in random.Random(zlib.crc32(data)).sample(calls, 5):
        with contextlib.suppress(BackendError):
            call()


def _slurm(folder, answers, data):
    """Follow jobs through a backend, whose commands answer so."""
    from asa.backends.slurm.backend import SlurmBackend
    from asa.backends.slurm.commands import CommandLink
    from slurm_fake_link import VirtualClock

    from asa.backend import Capabilities, JobSpec

    clock = VirtualClock()
    link = CommandLink(run=answers, clock=clock)
    backend = SlurmBackend(
        link, folder, Capabilities("c", 64, 4, age_accrues=False), poll_s=30.0, clock=clock, sleep=clock.sleep
    )
    spec = JobSpec("a", token=_TOKEN, cores=1, walltime_s=60.0, command="true")
    calls = [
        lambda: backend.submit(spec),
        lambda: backend.status(["7"]),
        lambda: backend.find([_TOKEN]),
        lambda: backend.wait(clock() + 60.0),
        lambda: backend.status(["7", "9"]),
        lambda: backend.queue_events(100),
        lambda: backend.cancel_all(["7"]),
        lambda: backend.wait(clock() + 120.0),
        lambda: backend.status(["7"]),
        backend.check_cluster,
    ]
    for call in calls:
        with contextlib.suppress(AsaError):
            call()
    _ask_all(link, data)


def _provide_run(folder):
    for name in ("scripts", "logs", "marks", "posts", "jobs"):
        (folder / "run" / name).mkdir(parents=True, exist_ok=True)


def _slurm_reader(name, samples, words):
    @_reader(name, samples, words, file="run/answers", provide=_provide_run)
    def _read(path, data):
        _slurm(path.parent, Answers(data), data)


_slurm_reader("squeue", _QUEUES, _STATES)
_slurm_reader(
    "sacct",
    lambda: [
        _answers(
            sacct=_accounted("7")
            + _accounted("7", "NODE_FAIL")
            + _accounted("8", "CANCELLED by 0", "b.x", ExitCode="0:15"),
            sbatch="7\n",
        ),
        _answers(
            sacct=_accounted("9", "RUNNING", "arr", JobID="9_1", End="Unknown")
            + _accounted("10", "OUT_OF_ME+", "arr", JobID="9_2"),
            squeue="",
        ),
        _answers(sacct=SACCT),
        b"==> sacct 1 <==\n!Slurm accounting storage is disabled\n",
        b"==> sacct 1 <==\n!sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection\n",
    ],
    _STATES,
)
_slurm_reader(
    "scontrol",
    lambda: [
        _answers(scontrol=_CONF, sacctmgr=_LIMITS),
        _answers(scontrol=_PARTS, sacctmgr=_LIMITS + "==> sacctmgr 0 <==\n" + _QUALITY),
        _answers(scontrol=_NODES),
        _answers(scontrol=_CONF + "==> scontrol 0 <==\n" + _PARTS + "==> scontrol 0 <==\n" + _NODES),
        (
            b"==> scontrol 1 <==\n!slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n"
            b"==> scontrol 0 <==\nslurm 22.05.8\n"
        ),
    ],
    lambda: (
        "==> scontrol 0 <==\n",
        "PartitionName=",
        "NodeName=",
        "Gres=gpu:",
        "UNLIMITED",
        "MaxTime=",
        "State=",
        "|",
        "cpu=",
        "gres/gpu=1",
    ),
)
_slurm_reader(
    "sbatch",
    lambda: [
        _answers(sbatch="7\n", scancel="", squeue=_queued("7")),
        _answers(sbatch="Welcome!\n7;c\n"),
        _answers(sbatch="7\n9\n"),
        b"==> sbatch 1 <==\n!sbatch: error: Batch job submission failed: Invalid partition name specified\n",
        (
            b"==> sbatch 1 <==\n!sbatch: error: AssocMaxSubmitJobLimit\n"
            b"!sbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n"
        ),
        (
            b"==> sbatch 0 <==\n!sbatch: Job 7 to start at 2026-01-01T00:00:00 using 1 processors on nodes n1 "
            b"in partition p\n"
        ),
        (
            b"==> scancel 1 <==\n!scancel: error: Kill job error on job id 7: Invalid job id specified\n"
            b"==> sbatch 255 <==\n!ssh: connect to host h port 22: Connection refused\n"
        ),
    ],
    lambda: (
        "==> sbatch 1 <==\n!",
        "error: ",
        "Batch job submission failed: ",
        "Socket timed out",
        "Invalid job id specified",
        "7;c\n",
    ),
)


_SURVEY = re.compile(rb"(?m)^==> ([\w.]+) <==\n")


@_reader(
    "survey",
    lambda: [
        b"".join(
            b"==> %s <==\n%s" % (name.encode(), text.encode())
            for name, text in {
                "config": _CONF,
                "partitions": _PARTS,
                "nodes": _NODES,
                "events": "n1|1700000000|1700003600|DOWN\nn2|1700000000|Unknown|DRAIN\n",
                "users": "12\n",
            }.items()
        )
    ],
    lambda: ("PartitionName=", "NodeName=", "Partitions=", "bf_window=", "PriorityWeightAge = 1", "DOWN", "Unknown"),
)
def _survey(_path, data):
    from asa.backends.slurm import facts

    names = {
        "config": facts._CONFIG,
        "partitions": facts._PARTITIONS,
        "nodes": facts._NODES,
        "events": facts._EVENTS,
        "users": facts._USERS,
    }
    parts = _SURVEY.split(data)
    texts = {
        names.get(name.decode(), "other"): text.decode("utf-8", "replace")
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    facts.read_facts(texts)


@cache
def _rest_samples():
    return json.loads((TESTS / "data/slurm/rest-samples.json").read_text())


def _bodies():
    found = []
    for release in _rest_samples().values():
        for status, body in release.values():
            text = body if isinstance(body, str) else json.dumps(body)
            if len(text) < 30_000:
                found.append(f"{status} application/json\n{text}".encode())
    return found


@_reader(
    "rest",
    _bodies,
    lambda: (
        "jobs",
        "job_state",
        "errors",
        "error_number",
        "set",
        "infinite",
        "number",
        "200 text/html\n",
        "500 x\n",
        "partitions",
        "nodes",
    ),
)
def _rest(_path, data):
    import httpx
    from asa.backends.slurm.rest import RestLink

    head, _, body = data.partition(b"\n")
    status, _, kind = head.decode("utf-8", "replace").partition(" ")
    number = int(status) if re.fullmatch(r"[1-5][0-9][0-9]", status) and status[0] != "1" else 200
    kind = re.sub(r"[^ -~]", "", kind)

    class Transport(httpx.BaseTransport):
        def handle_request(self, request):
            assert CANARY not in str(request.url), "text of an answer became a part of an address"
            return httpx.Response(number, content=body, headers={"Content-Type": kind})

    api = _choice(data, "v0.0.38", "v0.0.40", "v0.0.42", "v0.0.45", "")
    link = RestLink("https://h:6820", transport=Transport(), api=api, user=_choice(data, "", "me"))
    with contextlib.closing(link):
        _ask_all(link, data)


@_reader("rest listing", _bodies, lambda: ('{"job_id":', '"job_state":', "]", "}", ","))
def _rest_listing(_path, data):
    from asa.backends.slurm.rest import reading
    from asa.backends.slurm.rest.scan import Listing, decoded, find

    body = data.partition(b"\n")[2]
    whole = Listing("jobs", lambda entries: [reading.record(job) for job in decoded(entries)])
    pieces = Listing("jobs", lambda entries: [reading.record(job) for job in decoded(entries)])
    whole.feed(body)
    size = 1 + zlib.crc32(data) % 997
    for at in range(0, len(body), size):
        pieces.feed(body[at : at + size])
    assert (whole.rest(), whole.found) == (pieces.rest(), pieces.found), "it depends on how the answer arrived"
    find(body, "job_id", [1, 2, 7])


@_reader("token", of_text("SLURM_JWT=h.eyJleHAiOjE3MDAwMDAwMDAsInN1biI6Im1lIn0.s\n", "h.e30.s", "x"), file="token")
def _token(path, _data):
    from asa.backends.slurm.rest import TokenSource

    source = TokenSource.from_file(path)
    str((source.user, source.ends_s, source.has_ended, source.headers("me")))


# ---------------------------------------------------------------------- words


_AMOUNTS = (
    "1h",
    "1-02:03:04",
    "90",
    "1d 2h",
    "00:10:00",
    "4G",
    "1.5T",
    "1-9%4",
    "1,3,5-9:2",
    "0.02 per core-hour",
    "1e3s",
    "2 EUR",
    "n[1-4,7]",
)


@_reader("amounts", of_text(*_AMOUNTS), lambda: ("d", "h", "m", "s", "G", "K", "-", ":", ",", "%", "per", "core-hour"))
def _amounts(_path, data):
    from asa.elements import parse_array, parse_elements
    from asa.units import parse_duration, parse_memory, parse_price, parse_storage

    text = data.decode("utf-8", "replace")
    for parse in (parse_duration, parse_memory, parse_storage, parse_price, parse_elements, parse_array):
        with contextlib.suppress(InputError, ValueError):
            parse(text)


from fuzz import messages  # noqa: E402,F401 - further readers, which need what is above

"""Runs the command line on invalid input: `python tests/cli_fuzz.py --seed 7 --cases 500`.

Every command and option is found in the program itself. Values, files, streams and environments are drawn by the seed:
numbers that are huge, negative or none; text that is no UTF-8; files that are cut, flipped, random, or of another kind;
streams that are closed or full; locales, widths and homes that nobody has. A command may refuse all that, in words and
with an exit code that is documented. It may not show a traceback, own up to a mistake, or hang: who takes long must end
when it is interrupted.
"""

import argparse
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ASA = str(Path(sys.executable).with_name("asa"))
CODES = {0, 1, 2, 130, 141}
MISTAKES = (b"Traceback", b"a mistake in asa itself", b"Exception ignored", b"Fatal Python error")
LONG = {"run", "resume", "compare", "evaluate", "simulate", "campaign", "experiment", "workload", "plan", "doctor"}
LONG |= {"ccs", "dmr", "bbsched", "dras", "learn", "cancel"}  # what may rightly take long, or wait for others
MAX_KIB = 12 << 20

NUMBERS = (
    *("0", "-1", "1", "3", "2147483647", "2147483648", "9007199254740993", "-9223372036854775809", "1" + "0" * 12),
    *("1" + "0" * 30, "9" * 5000, "nan", "inf", "-inf", "1e3", "1e999", "0x10", "1_0", "", " ", "\uff11", "1.5", "-0"),
)
TEXTS = (
    *("", " ", ".", "..", "/", "-", "--", "~", "none", "*", "a" * 300, "a" * 5000, "\u00e9tape", "\U0001f4a5", "a\nb"),
    *("\udcff\udcfe", "[bold]", "[/]", "%s%n", "{}", "{{x}}", "$(id)", "'", '"', "a,b,,c", ",", "x=1", "=", "1:2:3:4"),
    *(
        "1d",
        "99999999999d",
        "-1h",
        "9" * 400 + "h",
        "0",
        "0s",
        "2026-99-99",
        "nan",
        "local",
        "simulated",
        "asa",
        "hpc2n",
    ),
)
PLACES = ("missing", "missing/further", "folder", "unreadable", "empty", "/dev/null", "/dev/full", "/proc/self/mem")
ENVIRONMENTS = (
    *({}, {}, {"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}),
    *({"COLUMNS": "0"}, {"COLUMNS": "1"}, {"COLUMNS": "1000000000", "LINES": "-5"}, {"TERM": "dumb"}, {"TERM": ""}),
    *({"HOME": "/nonexistent"}, {"HOME": "/proc"}, {"HOME": ""}, {"HOME": None}, {"PATH": ""}, {"TZ": "Nowhere/X"}),
    *({"ASA_RUNS": "empty"}, {"ASA_BANK": "empty"}, {"ASA_SITES": "empty"}, {"TMPDIR": "/nonexistent"}),
)
STREAMS = ("", "", "", "<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full", "</dev/zero", "1</dev/null")

FLOW = """\
name = "tiny"
[[stage]]
name = "a"
command = "true"
cores = 1
walltime = "1m"
expected = "5s"
[[stage]]
name = "b"
command = "echo hi"
cores = 2
walltime = "00:02:00"
memory = "10M"
after = ["a"]
"""
SITE = 'backend = "slurm-cli"\npoll = "5s"\n[observed]\nversion = "22.05.8"\n[observed.settings]\nage_accrues = false\n'
SACCT = "Cluster|JobIDRaw|User|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|ReqCPUS\n" + "".join(
    f"c|{i}|u|p|{1_700_000_000 + 60 * i}|{1_700_000_000 + 60 * i}|{1_700_000_100 + 61 * i}|{1_700_000_200 + 61 * i}"
    "|COMPLETED|60|4\n"
    for i in range(40)
)
SWF = "; MaxProcs: 64\n" + "".join(
    f"{i} {i * 300} {200 + 997 * i % 3000} 500 8 -1 -1 {1 + 31 * i % 40} 3600 -1 1 1 1 1 1 1 -1 -1\n"
    for i in range(1500)
)
TRACE = (
    "task_id\thash\tname\tstatus\trealtime\tcpus\n"
    "1\taa/bb\tALIGN (1)\tCOMPLETED\t2m\t4\n"
    "2\tcc/dd\tSORT (1)\tCOMPLETED\t1m\t1\n"
)
SCRIPT = "#!/bin/bash\n#SBATCH -n 4 -t 10 -J one\n#SBATCH --mem=2G\necho one\n"
WFFORMAT = json.dumps(
    {
        "name": "w",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    {"name": "a", "id": "a1", "parents": [], "children": ["b1"]},
                    {"name": "b", "id": "b1", "parents": ["a1"], "children": []},
                ]
            },
            "execution": {"makespanInSeconds": 3, "tasks": [{"id": "a1", "runtimeInSeconds": 1.5, "coreCount": 1}]},
        },
    }
)
FILES = {
    "flow.toml": FLOW,
    "site.toml": SITE,
    "jobs.txt": SACCT,
    "log.swf": SWF,
    "trace.txt": TRACE,
    "job.sh": SCRIPT,
    "instance.json": WFFORMAT,
    "deep.json": "[" * 200_000,
    "deeper.json": '{"a":' * 200_000,
    "deep.toml": "a = " + "[" * 200_000,
    "empty": "",
    "binary": bytes(range(256)) * 40,
}


@dataclass(frozen=True)
class Parameter:
    """One that a command takes."""

    name: str
    kind: str
    is_option: bool
    takes_value: bool
    is_list: bool
    hint: str


@dataclass
class Case:
    """A command to be run, and how."""

    number: int
    words: list
    environment: dict
    streams: str
    trouble: list = field(default_factory=list)

    def __str__(self):
        told = " ".join(f"{name}={value!r}" for name, value in self.environment.items())
        shown = " ".join(
            shlex.quote(word if len(word) < 200 else f"{word[:40]}...({len(word)})") for word in self.words
        )
        return f"case {self.number}: {told} asa {shown} {self.streams}".replace("\n", "\\n")


def commands():
    """Find every command, with its parameters."""
    import importlib

    from typer.main import get_command

    return dict(_walk(get_command(importlib.import_module("asa.cli.app").app), ()))


def _walk(command, path):
    if not (subcommands := getattr(command, "commands", None)):
        yield path, [_parameter(one) for one in command.params if one.name != "help"]
        return
    for name, one in subcommands.items():
        yield from _walk(one, (*path, name))


def type_of(one):
    """Return a parameter's type as text, and its largest number: as typer 0.29 says it, or as click does, before."""
    if (described := getattr(one, "type_descriptor", None)) is not None:
        return str(described.annotation), described.parameter_info.max
    names = {"integer": "int", "integer range": "int", "float": "float", "float range": "float", "path": "Path"}
    return names.get(one.type.name, "bool" if one.type.name == "boolean" else "str"), getattr(one.type, "max", None)


def choices_of(one):
    """Return what a parameter may be, of those that are some words: likewise."""
    if (described := getattr(one, "type_descriptor", None)) is not None:
        return {each.value for each in described.annotation}
    return set(one.type.choices)


def _parameter(one):
    annotation, _ = type_of(one)
    kind = next((kind for kind in ("bool", "int", "float", "Path") if kind in annotation), "str")
    is_option = one.opts[0].startswith("-")
    is_list = one.nargs == -1 or getattr(one, "multiple", False)
    return Parameter(one.opts[0], kind, is_option, kind != "bool", is_list, f"{one.name} {one.metavar or ''}".lower())


class Fuzz:
    """Draws cases, and runs them in a folder of its own."""

    def __init__(self, place, *, seed, within_s=20.0):
        self.place, self.seed, self.within_s = Path(place), seed, within_s
        self.known = commands()
        self._samples = self.place / "samples"
        self._prepare()

    def _prepare(self):
        """Make one good file of each kind that is read, a run and a bank."""
        self._samples.mkdir(parents=True)
        for name, text in FILES.items():
            (self._samples / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        home = self.place / "home"
        home.mkdir()
        usual = {**os.environ, "HOME": str(home)}
        for words in (
            "run flow.toml --backend local --runs runs --bank none --quiet",
            "learn --from jobs.txt --bank bank",
            "workload fit log.swf --out model.json",
            "compare blast --system hpc2n --cores 16 --seeds 1 --strategies per-stage,big-job --results results.json",
        ):
            options = {"cwd": self._samples, "env": usual, "capture_output": True, "timeout": 300}
            subprocess.run([ASA, *words.split()], **options, check=False)

    def case(self, number):
        """Draw a case."""
        draw = random.Random(f"{self.seed} {number}")
        path = draw.choice(list(self.known))
        words = list(path)
        given = [one for one in self.known[path] if not one.is_option or draw.random() < 0.3]
        odd = draw.choice((set(), set(given), set(draw.sample(given, min(len(given), 1)))))
        for one in given:
            for _ in range(draw.choice((1, 1, 1, 3)) if one.is_list else 1):
                value = [self._value(draw, one) if one in odd else self._likely(draw, one)] if one.takes_value else []
                words += [one.name, *value] if one.is_option else value
        if draw.random() < 0.05:
            words.insert(draw.randrange(len(words) + 1), draw.choice(("--help", "--", "--nix", "-", "")))
        words = [word.replace("\0", "") for word in words]
        return Case(number, words, dict(draw.choice(ENVIRONMENTS)), draw.choice(STREAMS))

    def _value(self, draw, one):
        if one.kind in {"int", "float"}:
            return draw.choice(NUMBERS)
        return draw.choice(draw.choice((TEXTS, NUMBERS, PLACES, tuple(FILES))))

    def _likely(self, draw, one):
        """Return what it may really want."""
        if one.kind in {"int", "float"}:
            return draw.choice(("1", "2", "40"))
        kinds = {
            "workflow": ("flow.toml", "montage", "deep.toml"),
            "trace": ("log.swf", "trace.txt"),
            "source": ("jobs.txt", "log.swf"),
            "bank": ("bank",),
            "runs": ("runs",),
            "run": ("runs/tiny", "results.json", ""),
            "site": ("site.toml",),
            "script": ("job.sh",),
            "instance": ("instance.json", "deep.json", "deeper.json"),
            "stage": ("a", "b"),
            "backend": ("local", "simulated", "slurm-cli", "openccs"),
            "set": ("system=hpc2n", "cores=4", "poll=5s", "partition=x", "seed=1"),
            "strateg": ("asa", "per-stage,big-job", "asa-plan"),
            "estimator": ("asa", "mean"),
            "cores": ("28", "4,8"),
            "system": ("hpc2n", "c"),
            "walltime": ("2h",),
            "within": ("2h",),
            "since": ("30d",),
            "older": ("30d",),
            "output": ("json", "table"),
            "executor": ("local",),
            "model": ("hpc2n", "model.json"),
            "by": ("category", "level", "geometry"),
            "scheduler": ("easy", "multifactor", "sjf"),
            "agent": ("ppo",),
            "config": ("small",),
            "deadline": ("2h",),
        }
        every = [value for word, values in kinds.items() if word in one.hint for value in values]
        return draw.choice(every or [*FILES, "model.json", "results.json"])

    def run(self, case):
        """Run a command on copies of the files, some of which are damaged; record traces of faults."""
        draw = random.Random(f"{self.seed} {case.number} files")
        folder = self.place / f"case-{case.number}"
        shutil.copytree(self._samples, folder, symlinks=True)
        (folder / "folder").mkdir()
        (folder / "unreadable").touch(mode=0)
        for file in sorted(
            path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.name != "empty"
        ):
            if draw.random() < 0.4 and file.suffix != ".py":
                file.write_bytes(spoilt(draw, file.read_bytes()))
        run = next((path.name for path in (folder / "runs").glob("*")), "tiny")
        words = [word.replace("runs/tiny", f"runs/{run}") for word in case.words]
        environment = {**os.environ, "HOME": str(folder), "ASA_RUNS": "runs", "ASA_BANK": "bank", **case.environment}
        environment = {name: value for name, value in environment.items() if value is not None}
        environment["PATH"] = environment["PATH"] and "/usr/local/bin:/bin"  # where there is no Slurm
        line = f'ulimit -v {MAX_KIB}; exec "$0" "$@" {case.streams}'
        arguments = [os.fsencode(word) for word in ("/bin/bash", "-c", line, ASA, *words)]
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            told, is_interrupted = self._told(case, process)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        case.trouble += [f"shows: {mistake.decode()}" for mistake in MISTAKES if mistake in told]
        if case.environment.get("LC_ALL") == "C" and not told.isascii() and not {"logs", "import"} & set(case.words):
            case.trouble.append("is not ASCII")
        if process.returncode not in CODES | ({-signal.SIGINT} if is_interrupted else set()):
            case.trouble.append(f"ended with {process.returncode}")
        if case.trouble:
            case.trouble.append(told[-1500:].decode(errors="replace"))
        return case

    def _told(self, case, process):
        try:
            return process.communicate(timeout=self.within_s)[0], False
        except subprocess.TimeoutExpired:
            if case.words[:1] and case.words[0] not in LONG and "--watch" not in case.words and "-f" not in case.words:
                case.trouble.append(f"did not end within {self.within_s:g} s")
        os.killpg(process.pid, signal.SIGINT)
        try:
            return process.communicate(timeout=self.within_s)[0], True
        except subprocess.TimeoutExpired:
            case.trouble.append("did not end when it was interrupted")
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0], True


def spoilt(draw, data):
    """Return a damaged version of a file."""
    if not data:
        return b"\0"
    at = draw.randrange(len(data))
    ways = (
        lambda: data[:at],
        lambda: data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :],
        lambda: draw.randbytes(min(len(data), 4000)),
        lambda: data[:at] + b"\0" * 64 + data[at:],
        lambda: re.sub(rb"\d+", lambda one: draw.choice((one[0], one[0], *map(_plain, NUMBERS))), data),
        lambda: re.sub(
            rb'"[a-z]+"', lambda one: draw.choice((one[0], one[0], b'""', b"null", b"[]", b"{}", b"7")), data
        ),
        lambda: data + data,
        lambda: data.replace(b"\n", b"\r\n"),
    )
    return draw.choice(ways)()


def _plain(number):
    return number.encode(errors="replace")


def main():
    """Run cases, print those that fail, and end with 1 if one did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the number of the first, to run one again")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        fuzz = Fuzz(Path(place) / "it", seed=asked.seed)
        cases = [fuzz.case(number) for number in range(asked.first, asked.first + asked.cases)]
        failed = 0
        with ThreadPoolExecutor(asked.jobs) as threads:
            for case in threads.map(fuzz.run, cases):
                if case.trouble:
                    failed += 1
                    lines = "\n".join(case.trouble).splitlines()
                    sys.stdout.write("\n    ".join([str(case), *lines]) + "\n")
                    sys.stdout.flush()
    sys.stdout.write(f"seed {asked.seed}: {len(cases)} cases of {len(fuzz.known)} commands, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

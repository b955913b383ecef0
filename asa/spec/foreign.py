"""Recognizes files of other tools that users pass as workflow files, and names the command that reads them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from asa.core.documents import read_text
from asa.core.late import dataclass
from asa.errors import InputError

_HEAD: Final = 100_000  # number of characters that are examined
_IMPORTS_ASA = re.compile(r"^(?:from|import) asa\b", re.MULTILINE)
_RULES = re.compile(r"^(?:rule|checkpoint)\s+\w+\s*:|^(?:rule|checkpoint)\s*:|^configfile:", re.MULTILINE)
_PROCESS = re.compile(r"^[ \t]*process[ \t]+\w+\s*\{|^[ \t]*nextflow\.(?:enable|preview)\.", re.MULTILINE)
_SCHEMA_VERSION = re.compile(r'"schemaVersion"\s*:\s*"')
_CWL = re.compile(r'^[ \t]*"?cwlVersion"?[ \t]*:', re.MULTILINE)
_WDL = re.compile(r"^version[ \t]+(?:1\.\d|draft-\d|development)[ \t]*$", re.MULTILINE)
_BATCH = re.compile(r"^#(?:SBATCH|PBS|BSUB)\b", re.MULTILINE)
_TRACE = re.compile(r"[^\n]*\t(?:realtime|duration)\b")
_SACCT = re.compile(r"(?=[^\n]*\bJobID(?:Raw)?\b)(?=[^\n]*\bSubmit\b)[^\n]*\|", re.IGNORECASE)
_SWF = re.compile(r"(?:;[^\n]*\n)+\s*-?\d+(?:[ \t]+-?[\d.]+){8}|\s*-?\d+(?:[ \t]+-?[\d.]+){17}[ \t]*\n")
_SNAKEFILES = frozenset({"Snakefile", "snakefile"})
_RULE_GRAPH = "digraph snakemake_dag"
_DRY_RUN = "Building DAG of jobs..."

_SNAKEMAKE = (
    "Draw its rules, as in: snakemake{s} --rulegraph >rules.dot; then: asa import snakemake rules.dot --out flow.toml. "
    "Or run it as it is: snakemake{s} --executor asa"
)
_NEXTFLOW = (
    "Run it once with a trace, as in: nextflow run {f} -with-trace trace.txt -with-dag dag.dot; then: "
    "asa import nextflow trace.txt --dag dag.dot --out flow.toml"
)
_RUNS_IT = (
    "No command of asa reads it: write a stage whose command runs it, as in {tool} {f}, or a stage for each step."
)
_RUN_BY: Final[Mapping[str, str]] = {".py": "python3 ", ".sh": "bash ", ".pl": "perl "}
_AS_HISTORY = "It is past jobs of a system: asa learn --from {f}, or asa worth flow.toml --history {f}"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A file of another tool."""

    what: str  # the kind of file, with its article
    hint: str  # the command that reads it, or what to do instead


def recognize(file: Path, text: str) -> Foreign | None:
    """Return the kind of a file that is no workflow file; None if the kind is not recognized.

    Examples
    --------
    >>> recognize(Path("a.json"), '{"name": "x", "schemaVersion": "1.4"}').hint
    'Make a workflow file of it: asa import wfformat a.json --out flow.toml'
    """
    head = text[:_HEAD]
    if (file.suffix == ".toml" or "[[stage" in head) and not head.startswith("#!"):
        return None
    what = next((kind for kind, is_it in _KINDS.items() if is_it(file, head)), "")
    if not what:
        return None
    name = shlex.quote(str(file))
    other = "" if file.name in _SNAKEFILES else f" -s {name}"
    if what == _SCRIPT and file.suffix == ".py" and _IMPORTS_ASA.search(head):
        return Foreign(what, f"It makes a workflow itself: python {name}")
    by = "" if head.startswith("#!") else _RUN_BY.get(file.suffix, "")
    run = name if by or "/" in name else f"./{name}"
    return Foreign(what, _HINTS[what].format(f=name, s=other, x=f"{by}{run}"))


def foreign_of(file: Path) -> Foreign | None:
    """Return the kind of a file that belongs to another tool; None if it does not, or cannot be read."""
    try:
        return recognize(file, read_text(file, "utf-8-sig")) if file.is_file() else None
    except (OSError, UnicodeDecodeError, InputError):
        return None


def _is_of(text: str, program: str) -> bool:
    """Whether a file is run by a program, or is not a script: here-documents in it are ignored."""
    return not text.startswith("#!") or program in text.partition("\n")[0]


_SCRIPT: Final = "a script"
_HINTS: Final[Mapping[str, str]] = {
    "a Snakefile": _SNAKEMAKE,
    "a pipeline of Nextflow": _NEXTFLOW,
    "a configuration of Nextflow": "Give the trace of a run: asa import nextflow trace.txt --config {f}",
    "a trace of Nextflow": "Make a model of it: asa import nextflow {f} --out flow.toml",
    "a workflow in CWL": _RUNS_IT.replace("{tool}", "cwltool --parallel"),
    "a workflow in WDL": _RUNS_IT.replace("{tool}", "miniwdl run"),
    "an instance in WfFormat": "Make a workflow file of it: asa import wfformat {f} --out flow.toml",
    "Snakemake's graph of rules": "Make a workflow file of it: asa import snakemake {f} --out flow.toml",
    "a dry run of Snakemake": "Give it with the rules: asa import snakemake rules.dot --jobs {f} --out flow.toml",
    "output of sacct": _AS_HISTORY,
    "a log in the Standard Workload Format": _AS_HISTORY,
    "a script that submits jobs": "Run what it submits, as a workflow: asa run -- {x} ARGUMENTS",
    "a batch script": "Make a workflow file of it: asa import scripts {f} --out flow.toml",
    _SCRIPT: "Make a workflow file of it: asa import scripts {f} --out flow.toml",
}

_KINDS: Final[Mapping[str, Callable[[Path, str], object]]] = {
    "a dry run of Snakemake": lambda _, text: _DRY_RUN in text,
    "an instance in WfFormat": lambda _, text: text.lstrip()[:1] == "{" and _SCHEMA_VERSION.search(text),
    "a workflow in CWL": lambda file, text: file.suffix == ".cwl" or _CWL.search(text),
    "a workflow in WDL": lambda file, text: file.suffix == ".wdl" or _WDL.search(text),
    "a configuration of Nextflow": lambda file, _: file.name == "nextflow.config",
    "a pipeline of Nextflow": lambda file, text: (
        file.suffix == ".nf" or (_is_of(text, "nextflow") and file.suffix != ".py" and _PROCESS.search(text))
    ),
    "a Snakefile": lambda file, text: (
        file.suffix == ".smk"
        or file.name in _SNAKEFILES
        or (_is_of(text, "snakemake") and file.suffix != ".py" and _RULES.search(text))
    ),
    "Snakemake's graph of rules": lambda _, text: _RULE_GRAPH in text,
    "a trace of Nextflow": lambda _, text: _TRACE.match(text),
    "output of sacct": lambda _, text: _SACCT.match(text),
    "a log in the Standard Workload Format": lambda _, text: _SWF.match(text),
    "a script that submits jobs": lambda file, text: (
        "sbatch" in text and not _BATCH.search(text) and (text.startswith("#!") or file.suffix in _RUN_BY)
    ),
    "a batch script": lambda file, text: _BATCH.search(text) and file.suffix != ".py",
    _SCRIPT: lambda file, text: text.startswith("#!") or file.suffix == ".py",
}
"""By kind: how it is recognized; the first kind that matches counts."""

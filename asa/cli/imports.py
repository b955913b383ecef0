"""``asa import``: workflow files from batch scripts, WfFormat, Snakemake and Nextflow."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.terminal import write_document
from asa.errors import InputError
from asa.units import MAX_CORES

if TYPE_CHECKING:
    from asa.importers import Imported

app = typer.Typer(
    help="""Make a workflow file of what there is: batch scripts, a WfFormat instance, a graph or a trace of others.

    The file is printed, or written with --out; what was left out, guessed or changed is listed on stderr. Nothing is
    run, and what is read stays as it is.
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


class By(StrEnum):
    """By what tasks are gathered into stages."""

    CATEGORY = "category"
    LEVEL = "level"
    CHAINS = "chains"


OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write it to this file. [default: stdout]", metavar="FILE", show_default=False),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]
NameOption = Annotated[
    str, typer.Option(help="Of the workflow. [default: from what is read]", metavar="NAME", show_default=False)
]


@app.command("scripts")
def scripts(
    files: Annotated[
        list[Path], typer.Argument(help="Batch scripts; or one shell script that submits some.", metavar="FILE...")
    ],
    out: OutOption = None,
    parallel: Annotated[bool, typer.Option("--parallel", help="Put none of them after another.")] = False,
    array_cores: Annotated[
        int | None,
        typer.Option(
            help="Cores that elements of a job array share at most. [default: 32, or more for fewer than 100 jobs]",
            min=1,
            max=MAX_CORES,
            metavar="CORES",
            show_default=False,
        ),
    ] = None,
    share_arrays: Annotated[
        bool,
        typer.Option(
            "--share-arrays",
            help="Make one stage of a job array: several jobs take its elements from one list, so that who starts "
            "late takes what is left.",
        ),
    ] = False,
    name: NameOption = "",
    force: ForceOption = False,
) -> None:
    """Make a workflow of batch scripts for Slurm, which stay as they are: each is a stage, after the one before it.

    Where a script says so in a comment before its first command, the order is from there: `# asa: after=prepare,align`
    or `# depends: prepare align`, by the names of jobs or files; those that say nothing then come after none.

    Of one shell script that submits others, as in `j1=$(sbatch --parsable a.sh)` and then
    `sbatch --dependency=afterok:$j1 b.sh`, the scripts, their options and their order are taken. Among others it is
    refused, as is a script that runs others of them: they would run twice.

    Options of sbatch for which a stage has no key are passed on to Slurm. Elements of a job
    array become tasks of one stage or several, side by side, or stages of their own; each keeps its walltime.
    """
    from asa.importers import import_scripts

    made = import_scripts(files, parallel=parallel, array_cores=array_cores, share_arrays=share_arrays, name=name)
    write_out(made, out, force=force)


@app.command("wfformat")
def wfformat(
    file: Annotated[Path, typer.Argument(help="An instance in WfFormat 1.5.", metavar="FILE")],
    out: OutOption = None,
    by: Annotated[
        By,
        typer.Option(help="Gather tasks of one name on one level of the graph, all of a level, or chains of tasks."),
    ] = By.CATEGORY,
    cores: Annotated[
        int | None,
        typer.Option(
            help="Cores of a stage at most: what does not fit takes turns.", min=1, max=MAX_CORES, show_default=False
        ),
    ] = None,
    model: Annotated[bool, typer.Option("--model", help="Leave the commands out.")] = False,
    name: NameOption = "",
    force: ForceOption = False,
) -> None:
    """Make a workflow of a WfFormat instance, as WfCommons publishes them.

    Tasks are gathered into stages. A stage is expected to run as long as its tasks take on its cores, the longest
    first, each core taking the next as soon as it is free.
    """
    from asa.importers import import_wfformat

    made = import_wfformat(file, by=by.value, cores=cores, commands=not model, name=name)
    write_out(made, out, force=force)


@app.command("snakemake")
def snakemake(
    file: Annotated[
        Path, typer.Argument(help="What `snakemake --rulegraph` printed, or `--dag --forceall`.", metavar="FILE")
    ],
    out: OutOption = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            help="What `snakemake --dry-run --forceall --cores 1000` printed: jobs, threads, mem_mb, runtime.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(help="Cores of a stage; with --jobs, at most.", min=1, max=MAX_CORES, show_default=False),
    ] = None,
    command: Annotated[
        str, typer.Option(help="How Snakemake is called, with what it always needs, as -s FILE or --use-conda.")
    ] = "snakemake",
    name: NameOption = "",
    force: ForceOption = False,
) -> None:
    """Make a workflow in which each rule of Snakemake is a stage, run by Snakemake with --until.

    To run a Snakemake workflow as it is, job by job: `snakemake --executor asa`, see docs/snakemake.md.
    """
    from asa.importers import import_snakemake

    write_out(import_snakemake(file, jobs=jobs, cores=cores, command=command, name=name), out, force=force)


@app.command("nextflow")
def nextflow(
    file: Annotated[Path, typer.Argument(help="What `nextflow run -with-trace` wrote.", metavar="FILE")],
    out: OutOption = None,
    dag: Annotated[
        Path | None,
        typer.Option(help="What `-with-dag` wrote: .dot, .mmd or .html.", metavar="FILE", show_default=False),
    ] = None,
    cores: Annotated[
        int | None, typer.Option(help="Cores of a stage at most.", min=1, max=MAX_CORES, show_default=False)
    ] = None,
    name: NameOption = "",
    force: ForceOption = False,
) -> None:
    """Make a model of a Nextflow workflow from its trace, for `asa compare`: it runs nothing."""
    from asa.importers import import_nextflow

    write_out(import_nextflow(file, dag=dag, cores=cores, name=name), out, force=force)


def write_out(made: Imported, out: Path | None, *, force: bool) -> None:
    """Print a workflow file, or write it, and say what to know and what to do next."""
    from asa.importers import as_toml
    from asa.spec import write_workflow

    text = as_toml(made, Path.cwd() if out is None else out.parent, write_workflow)
    if out is None:
        write_document(text)
    else:
        write_text(out, text, force=force)
    for note in made.notes:
        sys.stderr.write(f"note: {note}\n")
    file = shlex.quote(str(out or "flow.toml"))
    saved = "" if out is not None else " (saved as flow.toml, or with --out)"
    runs = not any(stage.is_idle for stage in made.workflow.stages.values())
    then = f"asa run {file}" if runs else f"asa compare {file}"
    sys.stderr.write(f"Next{saved}:  asa check {file}  and then  {then}\n")


def write_text(out: Path, text: str, *, force: bool) -> None:
    """Write a file; not over another, unless that is wished."""
    try:
        with out.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError("is there already", where=str(out), hint="Give another name, or --force.") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError("its folder is not there", where=str(out), hint="Make it first.") from error
    sys.stderr.write(f"Written to {out}.\n")

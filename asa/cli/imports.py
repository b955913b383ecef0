"""``asa import``: makes workflow files from batch scripts, WfFormat, Snakemake and Nextflow."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from asa.cli.imported import write_out
from asa.cli.recorded import LIMIT, RecordingWay, record_into
from asa.errors import InputError
from asa.units import MAX_CORES

app = typer.Typer(
    help="""Make a workflow file from batch scripts, from Snakemake or Nextflow, or from a WfFormat instance.

    The file is printed, or written with --out. What was left out, guessed or changed is listed on stderr. No script
    is changed, and none is run, but for `asa import scripts --record`.
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


class By(StrEnum):
    """The rule by which tasks are grouped into stages."""

    CATEGORY = "category"
    LEVEL = "level"
    CHAINS = "chains"


_RECORDING = "Recording"

OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Write it to this file, `-` for stdout. [default: stdout]",
        metavar="FILE",
        show_default=False,
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
NameOption = Annotated[
    str, typer.Option(help="Name of the workflow. [default: taken from the input]", metavar="NAME", show_default=False)
]


@app.command("scripts")
def scripts(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Batch scripts, or one shell script that submits batch scripts; with --record: the command to run.",
            metavar="FILE...",
        ),
    ],
    out: OutOption = None,
    records: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Run the command that follows `--` once, with stand-ins for sbatch and the like, and record what it "
            "submits. Nothing is submitted, and what it writes is thrown away.",
            rich_help_panel=_RECORDING,
        ),
    ] = False,
    limit: Annotated[
        str,
        typer.Option(
            help="With --record: for how long the command may run.", metavar="DURATION", rich_help_panel=_RECORDING
        ),
    ] = LIMIT,
    has_network: Annotated[
        bool,
        typer.Option(
            "--network", help="With --record: let the command reach other machines.", rich_help_panel=_RECORDING
        ),
    ] = False,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="With --record: run the command without a private view of the files. What it does besides submitting "
            "is really done.",
            rich_help_panel=_RECORDING,
        ),
    ] = False,
    adds: Annotated[
        bool,
        typer.Option(
            "--add",
            help="With --record: run the commands again that the file was recorded from, and then this one, which may "
            "name the numbers that they got.",
            rich_help_panel=_RECORDING,
        ),
    ] = False,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--as-parameter",
            help="With --record: what was an argument becomes a parameter of the workflow file, as in sample=s1; may "
            "be repeated.",
            metavar="NAME=VALUE",
            show_default=False,
            rich_help_panel=_RECORDING,
        ),
    ] = None,
    parallel: Annotated[bool, typer.Option("--parallel", help="Make no stage depend on another.")] = False,
    array_cores: Annotated[
        int | None,
        typer.Option(
            help="With --pack-arrays: the most cores that one stage may have. [default: 32, or more, so that there are "
            "fewer than 100 jobs]",
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
            help="Make a job array one stage whose elements are shared by several jobs: each job takes the next "
            "element that nobody has begun.",
        ),
    ] = False,
    pack_arrays: Annotated[
        bool,
        typer.Option(
            "--pack-arrays", help="Have elements of a job array share jobs where they can. [default: it stays an array]"
        ),
    ] = False,
    name: NameOption = "",
    force: ForceOption = False,
) -> None:
    """Make a workflow from Slurm batch scripts: each script is a stage that depends on the one before.

    A comment before a script's first command gives other dependencies, by job or file name: `# asa:
    after=prepare,align` or `# depends: prepare align`. If any script has such a comment, scripts without one depend on
    nothing.

    From one shell script that submits others, as in `j1=$(sbatch --parsable a.sh)` and then `sbatch
    --dependency=afterok:$j1 b.sh`, the scripts, their options and their dependencies are taken. Give such a script
    alone. A script that runs another of the given scripts is refused, since that one would run twice.

    With `--record -- COMMAND` a driver in any language is run once, and what it submits becomes the workflow: loops,
    arguments and variables have the values of that run. The driver sees the files as they are. Files that it writes are
    kept next to the workflow file if jobs may need them, and else thrown away.

    Options of sbatch for which there is no key are passed on to Slurm. A job array becomes a stage that is a job array;
    with --pack-arrays its elements become tasks of one or several stages, or one stage each. Each keeps its walltime.
    """
    from asa.importers import import_scripts

    if records and parallel:
        hint = "A recording has the dependencies that the driver gives: leave the option out."
        raise InputError("goes without --record only", where="--parallel", hint=hint)
    of_recording = {"--network": has_network, "--in-place": in_place, "--add": adds, "--as-parameter": parameters}
    if not records and (option_given := next((option for option, given in of_recording.items() if given), "")):
        hint = f"To run a driver and record what it submits: asa import scripts --record {option_given} ... -- COMMAND"
        raise InputError("goes with --record only", where=option_given, hint=hint)
    if records:
        choices = {"cores": array_cores, "is_shared": share_arrays, "is_packed": pack_arrays}
        how = RecordingWay(limit, not in_place, has_network, adds, parameters or (), choices, name)
        record_into(out or Path("flow.toml"), files, how, force=force)
        return
    made = import_scripts(
        [Path(file) for file in files],
        parallel=parallel,
        array_cores=array_cores,
        share_arrays=share_arrays,
        pack_arrays=pack_arrays,
        name=name,
    )
    write_out(made, out, force=force)


@app.command("wfformat")
def wfformat(
    file: Annotated[Path, typer.Argument(help="An instance in WfFormat 1.4 or 1.5.", metavar="FILE")],
    out: OutOption = None,
    by: Annotated[
        By,
        typer.Option(
            help="Group tasks of one name on one level of the graph, all tasks of a level, or chains of tasks."
        ),
    ] = By.CATEGORY,
    cores: Annotated[
        int | None,
        typer.Option(
            help="The most cores of a stage; tasks that do not fit run one after another.",
            min=1,
            max=MAX_CORES,
            show_default=False,
        ),
    ] = None,
    model: Annotated[bool, typer.Option("--model", help="Leave out the commands.")] = False,
    name: NameOption = "",
    force: ForceOption = False,
) -> None:
    """Make a workflow from a WfFormat instance, as published by WfCommons.

    Tasks are grouped into stages. The expected run time of a stage is that of its tasks on its cores, when each free
    core takes the longest task that is left.
    """
    from asa.importers import import_wfformat

    made = import_wfformat(file, by=by.value, cores=cores, commands=not model, name=name)
    write_out(made, out, force=force)


@app.command("snakemake")
def snakemake(
    file: Annotated[
        Path,
        typer.Argument(help="Output of `snakemake --rulegraph`, or of `snakemake --dag --forceall`.", metavar="FILE"),
    ],
    out: OutOption = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            help="Output of `snakemake --dry-run --forceall --cores 1000`, from which jobs, threads, mem_mb and "
            "runtime are taken.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(
            help="Cores of a stage; with --jobs, the most that it may have.", min=1, max=MAX_CORES, show_default=False
        ),
    ] = None,
    command: Annotated[
        str,
        typer.Option(
            help="The command that runs Snakemake, with the options that it always needs, as -s FILE or --use-conda."
        ),
    ] = "snakemake",
    name: NameOption = "",
    force: ForceOption = False,
) -> None:
    """Make a workflow with one stage per Snakemake rule, each run by `snakemake --until`.

    To run a Snakemake workflow as it is, job by job: `snakemake --executor asa`, see docs/how-to/snakemake.md.
    """
    from asa.importers import import_snakemake

    write_out(import_snakemake(file, jobs=jobs, cores=cores, command=command, name=name), out, force=force)


@app.command("nextflow")
def nextflow(
    file: Annotated[Path, typer.Argument(help="Trace file of `nextflow run -with-trace`.", metavar="FILE")],
    out: OutOption = None,
    dag: Annotated[
        Path | None,
        typer.Option(help="File of `-with-dag`: .dot, .mmd or .html.", metavar="FILE", show_default=False),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="The nextflow.config of the run: CPUs of processes, where the trace has no column `cpus`. [default: "
            "nextflow.config next to the trace]",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    cores: Annotated[
        int | None, typer.Option(help="The most cores of a stage.", min=1, max=MAX_CORES, show_default=False)
    ] = None,
    name: NameOption = "",
    force: ForceOption = False,
) -> None:
    """Make a model of a Nextflow workflow from its trace, for `asa compare`; the model has no commands."""
    from asa.importers import import_nextflow

    write_out(import_nextflow(file, dag=dag, config=config, cores=cores, name=name), out, force=force)

"""Workflows from existing files: batch scripts, WfFormat instances, graphs of Snakemake, traces of Nextflow.

Each importer is a function that returns an `Imported`: a workflow, and notes for its user about the translation. It
runs nothing, changes no file, and asks no batch system.
"""

from .base import Imported, as_toml
from .nextflow import import_nextflow
from .scripts import import_scripts
from .snakemake import import_snakemake
from .wfformat import export_wfformat, import_wfformat

__all__ = [
    "Imported",
    "as_toml",
    "export_wfformat",
    "import_nextflow",
    "import_scripts",
    "import_snakemake",
    "import_wfformat",
]

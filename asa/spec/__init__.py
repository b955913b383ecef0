"""Workflow files: reads TOML into a checked `Workflow`, with errors that name file and line; and writes TOML."""

from __future__ import annotations

from asa.spec.problems import Problem
from asa.spec.reading import check_file, load_workflow, near_parameter, parameters_of
from asa.spec.schema import schema_document, schema_text
from asa.spec.writing import write_workflow

__all__ = [
    "Problem",
    "check_file",
    "load_workflow",
    "near_parameter",
    "parameters_of",
    "schema_document",
    "schema_text",
    "write_workflow",
]

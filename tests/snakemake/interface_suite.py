"""Snakemake's own test cases for executors, against asa on this machine; run by tests/snakemake/test_results.py."""

import os
from pathlib import Path
from typing import Optional

import snakemake.common.tests
from snakemake_executor_plugin_asa import ExecutorSettings
from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase


class TestWorkflows(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    """Its workflows, with the files where they are."""

    __test__ = True

    def get_executor(self) -> str:
        return "asa"

    def get_executor_settings(self) -> Optional[ExecutorSettingsBase]:  # noqa: UP045 - as Snakemake has it
        spool = Path(os.environ["ASA_TEST_SPOOL"])
        return ExecutorSettings(backend="local", option=["cores=4", f"spool={spool}"], bank="none")

"""Output files of the jobs of a hosted run."""

from types import SimpleNamespace

import pytest

from asa.hosted.outputs import Outputs


@pytest.mark.parametrize("pattern", ["s.7.{}-0a1b2c.err", "s_{}.100.err", "{}.err"])
def test_many_are_found_by_one_look_at_their_folder(tmp_path, pattern):
    """However a backend names them; those that came later by another."""
    run = SimpleNamespace(path=tmp_path, plan=SimpleNamespace(id="0123456789abcdef"))
    outputs, logs = Outputs(run), tmp_path / "logs"
    assert outputs.errors_of("0123456789ab-1-0") is None
    logs.mkdir()

    def wrote(stage):
        path = logs / pattern.format(f"0123456789ab-{stage}-0")
        path.touch()
        path.with_suffix(".out").touch()
        return path

    paths = {stage: wrote(stage) for stage in (1, 11, 2, 21)}
    looks = outputs.looks
    for stage, path in paths.items():
        assert outputs.errors_of(f"0123456789ab-{stage}-0") == path
    assert outputs.looks == looks + 1
    later = wrote(3)
    assert outputs.errors_of("0123456789ab-3-0") == later
    assert outputs.errors_of("0123456789ab-3-1") is None
    assert outputs.errors_of("") is None


def test_a_step_of_a_job_has_its_own_or_else_the_jobs(tmp_path):
    """As the jobs of earlier versions had."""
    run = SimpleNamespace(path=tmp_path, plan=SimpleNamespace(id="0123456789abcdef"))
    outputs, logs, token = Outputs(run), tmp_path / "logs", "0123456789ab-1x2-0"
    logs.mkdir()
    of_job, own = logs / f"flow_a+b.{token}-0a1b2c.err", logs / f"flow_a+b.{token}.7.step-2.err"
    of_job.touch()
    assert outputs.errors_of(token, 2) == of_job
    own.touch()
    assert [outputs.errors_of(token, step) for step in (0, 1, 2)] == [of_job, of_job, own]

"""Real programs give the same under asa as in a plain loop over their commands, and the right thing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from real_pipelines import SMALL, completed, read_image, run_by_asa, run_in_a_loop, write_image


def beside_a_loop(*words):
    command = [sys.executable, Path(__file__).parents[1] / "whole_pipelines.py", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.full
@pytest.mark.parametrize(
    "strategy",
    ["asa", "big-job", *(pytest.param(one, marks=pytest.mark.full) for one in ("per-stage", "chained", "asa-naive"))],
)
def test_results_are_those_of_the_loop(made, settings, strategy):
    work = made.work()
    result = run_by_asa(made.flow, work, strategy, "local", settings)
    assert not result.reason
    assert sorted(completed(work)) == sorted(made.flow.stages)
    assert made.verdict(work).startswith("good")
    assert made.likeness(work) == "the same bytes"


@pytest.mark.full
def test_the_default_projection_gives_the_same_but_for_some_pixels(montage, settings, monkeypatch):
    """It reads a little of what is in memory by chance."""
    flow = montage.pipeline.load(SMALL, 2, project="mProject")
    loop, work = montage.work(), montage.work()
    run_in_a_loop(flow, loop)
    assert not run_by_asa(flow, work, "asa", "local", settings).reason
    assert montage.verdict(work).startswith("good")
    monkeypatch.setattr(montage, "reference", loop)
    assert montage.likeness(work).startswith("the same")


def test_a_plain_loop_is_right(made):
    assert made.verdict(made.reference).startswith("good")


class TestChecksFindWhatIsWrong:
    """A check that cannot fail tells nothing."""

    def test_with_a_corner_whose_background_is_off(self, montage):
        """By one and a half times the noise of a pixel."""
        work = montage.work()
        image, header = read_image(montage.reference / "mosaic.fits")
        image[: image.shape[0] // 3, : image.shape[1] // 3] += 3.0
        kept = {key: value for key, value in header.items() if key[:2] in {"CR", "CD", "CT"}}
        write_image(work / "mosaic.fits", image, kept)
        shutil.copy(montage.reference / "mosaic.png", work)
        assert montage.verdict(work).startswith("BAD")
        assert montage.likeness(work).startswith("DIFFERS")

    def test_with_a_hole(self, montage):
        work = montage.work()
        tile = work / "raw" / "tile_0005.fits"
        tile.unlink()
        flow = montage.pipeline.load(SMALL, 2, tiles=5)
        run_in_a_loop(flow, work)
        assert "tiles 5 are missing" in montage.verdict(work)
        assert montage.likeness(work).startswith("DIFFERS")

    @pytest.mark.parametrize("spoil", [lambda lines: lines[1:], lambda lines: [*lines, lines[0].replace("_0", "_9")]])
    def test_with_a_hit_too_few_or_too_many(self, blast, spoil):
        work = blast.work()
        lines = (blast.reference / "best.tsv").read_text().splitlines()
        (work / "best.tsv").write_text("\n".join(spoil(lines)) + "\n")
        assert blast.verdict(work).startswith("BAD")

    @pytest.mark.full
    def test_with_rows_that_were_lost(self, statistics, settings):
        work = statistics.work()
        rows = (work / "power.txt").read_text().splitlines(keepends=True)
        (work / "power.txt").write_text("".join(rows[:-1]))
        assert not run_by_asa(statistics.flow, work, "asa", "local", settings).reason
        assert statistics.verdict(work).startswith("BAD: 19977 rows in place of 19978")


@pytest.mark.full
def test_the_study_tells_how_each_way_went(blast, settings, tmp_path):
    words = ["blast", "--strategies", "big-job,asa", "--folder", tmp_path / "new"]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = beside_a_loop(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the same bytes") == 2
    assert "a plain loop, big-job, asa: good: 103 of 103 planted relatives found, 0 false hits" in done.stdout


@pytest.mark.full
def test_the_study_models_a_queue(blast):
    done = beside_a_loop("blast", "--backend", "simulated", "--strategies", "per-stage,asa")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "search on hpc2n" in done.stdout

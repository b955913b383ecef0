"""A fault in a real pipeline ends its run, even if a program reports it and exits with 0."""

import subprocess

import pytest
from real_pipelines import completed, run_by_asa, with_program, written

pytestmark = pytest.mark.full  # real programs, over and over


def images_table(path, names):
    rows = "".join(f"  {name:<32}\n" for name in names)
    path.write_text(f"| fname                          |\n| char                           |\n{rows}")


def check_failed(result, work, stage, *, after):
    assert result.reason.startswith(f"stage '{stage}' ended as failed"), result.reason
    assert sorted(completed(work)[-max(len(after), 1) :]) == sorted(after)  # at the same time, if they are several


def test_a_tile_that_is_missing(montage, settings):
    work = montage.work()
    (work / "raw" / "tile_0004.fits").unlink()
    result = run_by_asa(montage.flow, work, "asa", "local", settings)
    check_failed(result, work, "prepare", after=[])
    assert "there are not 6 good images in raw/" in written(work, "prepare")


def test_a_tile_that_was_cut_short(montage, settings):
    """Its header is whole, so that Montage's table takes it for good."""
    work = montage.work()
    tile = work / "raw" / "tile_0004.fits"
    tile.write_bytes(tile.read_bytes()[: 5 * 2880])
    result = run_by_asa(montage.flow, work, "asa", "local", settings)
    check_failed(result, work, "mProject", after=["prepare"])
    assert "asa: task 4 of 6 failed with exit code 1: mProjectPP raw/tile_0004.fits" in written(work, "mProject")


def test_a_program_that_fails(montage, settings, tmp_path):
    """What it wrote until then is not taken for the mosaic."""
    work = montage.work()
    flow = with_program(montage.flow, tmp_path, "mAdd", "for last; do :; done; echo half >$last; exit 1")
    result = run_by_asa(flow, work, "asa", "local", settings)
    check_failed(result, work, "mAdd", after=["mImgtbl"])
    assert not (work / "mosaic.fits").exists()


def test_a_program_that_fails_once(montage, settings, tmp_path):
    work = montage.work()
    once = f'[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; exit 1; }}; exec $real "$@"'
    flow = with_program(montage.flow, tmp_path, "mAdd", once)
    assert not run_by_asa(flow, work, "asa", "local", settings).reason
    assert montage.likeness(work) == "the same bytes"


def test_an_output_that_is_missing(montage, settings, tmp_path):
    work = montage.work()
    flow = with_program(montage.flow, tmp_path, "mViewer", """echo '[struct stat="OK"]'""")
    result = run_by_asa(flow, work, "asa", "local", settings)
    check_failed(result, work, "mViewer", after=["mShrink"])
    assert "asa: the output mosaic.png is missing" in written(work, "mViewer")


def test_two_images_that_do_not_overlap(montage, settings, tmp_path):
    """Of which Montage says that there is an error, and exits with 0."""
    said = tmp_path / "said"
    pair = [montage.reference / "projected" / f"tile_000{number}.fits" for number in (1, 6)]
    command = ["mDiffFit", "-s", said, *pair, tmp_path / "difference.fits", montage.reference / "region.hdr"]
    assert subprocess.run(command, check=False).returncode == 0
    assert 'stat="ERROR"' in said.read_text()
    work = montage.work()
    plant = '$real "$@" && echo " 0 5 tile_0001.fits tile_0006.fits planted.fits" >>pairs.tbl'
    result = run_by_asa(with_program(montage.flow, tmp_path, "mOverlaps", plant), work, "asa", "local", settings)
    check_failed(result, work, "mDiffFit", after=["mProject"])
    assert "projected/tile_0006.fits difference/planted.fits" in written(work, "mDiffFit")


def test_an_empty_list(montage, settings, tmp_path):
    """Of which Montage makes an empty table, and exits with 0."""
    images_table(tmp_path / "none.tbl", [])
    command = ["mImgtbl", "-t", tmp_path / "none.tbl", montage.reference / "raw", tmp_path / "raw.tbl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert " count=0," in done.stdout
    work = montage.work()
    empty = f'exec $real -t {tmp_path}/none.tbl "$3" "$4"'
    result = run_by_asa(with_program(montage.flow, tmp_path, "mImgtbl", empty), work, "asa", "local", settings)
    check_failed(result, work, "prepare", after=[])


@pytest.mark.parametrize(
    ("program", "stage", "last"),
    [("mProjectPP", "mDiffFit", "mProject"), ("mBackground", "mImgtbl", "mBackground")],
)
def test_an_image_that_is_silently_left_out(montage, settings, tmp_path, program, stage, last):
    """By a program that exits with 0: the stage after it misses it."""
    work = montage.work()
    skips = 'case "$*" in *tile_0003*) echo OK ;; *) exec $real "$@" ;; esac'
    result = run_by_asa(with_program(montage.flow, tmp_path, program, skips), work, "asa", "local", settings)
    check_failed(result, work, stage, after=[last])


def test_a_database_that_is_missing(blast, settings):
    work = blast.work()
    (work / "database.fa").unlink()
    result = run_by_asa(blast.flow, work, "per-stage", "local", settings)
    assert result.reason.startswith("stage 'format' ended as failed")
    assert "asa: the input database.fa is missing" in written(work, "format")


def test_fewer_queries_than_parts(blast, settings):
    """An empty part would be searched without an error."""
    work = blast.work()
    (work / "queries.fa").write_text(">query_1\nACGTACGTACGT\n")
    result = run_by_asa(blast.flow, work, "per-stage", "local", settings)
    assert result.reason.startswith("stage 'split' ended as failed")
    assert "1 queries cannot be divided into 4 parts" in written(work, "split")


def test_a_part_that_was_not_searched(blast, settings, tmp_path):
    work = blast.work()
    skips = 'case "$*" in *0002*) exit 0 ;; *) exec $real "$@" ;; esac'
    result = run_by_asa(with_program(blast.flow, tmp_path, "blastn", skips), work, "asa", "local", settings)
    check_failed(result, work, "search", after=["format", "split"])
    assert "asa: task 2 of 4 failed" in written(work, "search")

"""The file of a release that names each package's version and the SHA-256 of its files."""

import hashlib
import re
from pathlib import Path

import hashed_constraints
import pytest

ROOT = Path(__file__).parents[1]


def package(name, version, digest):
    where = f"https://files.example.org/{name}-{version}.whl"
    return {
        "metadata": {"name": name, "version": version},
        "download_info": {"url": where, "archive_info": {"hashes": {"sha256": digest}}},
    }


@pytest.fixture
def files(tmp_path):
    made = [tmp_path / "asa_client-9.8.7-py3-none-any.whl", tmp_path / "asa_client-9.8.7.tar.gz"]
    for number, path in enumerate(made):
        path.write_bytes(bytes([number]))
    return made


def test_each_file_that_may_be_installed_is_named_and_no_address(files):
    pinned = "# why\nnumpy==2.4.1\nPy_Yaml.x==6.0\nunused==1\n"
    reports = [
        {"install": [package("numpy", "2.4.1", "a" * 64), package("asa-client", "9.8.7", "f" * 64)]},
        {"install": [package("numpy", "2.4.1", "b" * 64), package("py-yaml-x", "6.0", "c" * 64)]},
        {"install": [package("NumPy", "2.4.1", "a" * 64)]},
    ]
    text = hashed_constraints.document(reports, files, pinned)
    named = {
        match[1]: re.findall(r"--hash=sha256:([0-9a-f]{64})", match[0])
        for match in re.finditer(r"^([\w.-]+==\S+)(?: \\\n +--hash=\S+)+$", text, re.MULTILINE)
    }
    assert named == {
        "asa-client==9.8.7": sorted(hashlib.sha256(bytes([number])).hexdigest() for number in (0, 1)),
        "numpy==2.4.1": ["a" * 64, "b" * 64],
        "py-yaml-x==6.0": ["c" * 64],
    }
    assert "://" not in text
    assert all(line.startswith("#") or line.lstrip().startswith("--hash") or "==" in line for line in text.splitlines())


@pytest.mark.parametrize("version", ["2.4.2", "2.4.1.post1"])
def test_a_version_that_is_not_pinned_ends_the_release(files, version):
    with pytest.raises(SystemExit, match="not of constraints"):
        hashed_constraints.document([{"install": [package("numpy", version, "a" * 64)]}], files, "numpy==2.4.1\n")


def test_constraints_name_no_address():
    assert "://" not in (ROOT / "constraints.txt").read_text()

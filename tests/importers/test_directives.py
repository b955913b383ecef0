"""Options of sbatch in a script: every case here was tried with sbatch 22.05."""

import pytest

from asa.errors import InputError
from asa.importers import import_scripts
from asa.requests.directives import read_directives, unseen


def read(*lines):
    return {d.name: d.value for d in read_directives("\n".join(["#!/bin/sh", *lines, "hostname"]), "a.sh")}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#SBATCH\t-J a", {"job-name": "a"}),
        ("#SBATCH-Ja", {"job-name": "a"}),
        ("#SBATCH -J a # hello -n 3", {"job-name": "a"}),
        ("#SBATCH -J a#b -n 3", {"job-name": "a"}),
        ("#SBATCH --job-name=\"a b\" --comment='x y'", {"job-name": "a b", "comment": "x y"}),
        ('#SBATCH --comment=a"b c"d', {"comment": "ab cd"}),
        ('#SBATCH --comment="a # b" -n2', {"comment": "a # b", "ntasks": "2"}),
        ('#SBATCH --comment="a\\"b\\\\c" -n2', {"comment": 'a"b\\c', "ntasks": "2"}),
        ("#SBATCH --comment='a\\b' -n2", {"comment": "ab", "ntasks": "2"}),
        ("#SBATCH -n 2 -N 2-3 -t 5", {"ntasks": "2", "nodes": "2-3", "time": "5"}),
        ("#SBATCH --ntasks 3 --time 7", {"ntasks": "3", "time": "7"}),
        ("#SBATCH --cluster a --cluster-c=b", {"clusters": "a", "cluster-constraint": "b"}),
        ("#SBATCH --ntasks-per-n 2 --job a", {"ntasks-per-node": "2", "job-name": "a"}),
        ("#SBATCH -Hn2", {"hold": None, "ntasks": "2"}),
        ("#SBATCH --comment=$HOME -n 2", {"comment": "$HOME", "ntasks": "2"}),
        ("#SBATCH --exclusive -n 2", {"exclusive": None, "ntasks": "2"}),
        ("#SBATCH --exclusive=user", {"exclusive": "user"}),
        ("#SBATCH -n=2", {"ntasks": "=2"}),
        (" #SBATCH -J a", {}),
        ("# SBATCH -J a", {}),
        ("##SBATCH -J a", {}),
        ("#sbatch -J a", {}),
        ("#SBATCH", {}),
        ('#SBATCH -n 2 "" -t 5', {"ntasks": "2"}),
        ("#SBATCH -J ''a -C\"\"b", {"job-name": "a", "constraint": "b"}),
        ("#SBATCH --constraint='' -n 2", {"constraint": "", "ntasks": "2"}),
    ],
)
def test_a_line_is_read_as_sbatch_reads_it(line, told):
    assert read(line) == told


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("#SBATCHX -Ja", "X"),
        ("#SBATCH --comment=a\\ b -n2", "'b'"),
        ('#SBATCH --comment="a b', "not closed"),
        ("#SBATCH --cpus 2", "ambiguous"),
        ("#SBATCH -n 2 foo -t 5", "foo"),
        ("#SBATCH --exclusive user", "user"),
        ("#SBATCH: -n 2", "':'"),
        ("#SBATCH -n 2 -- -t 5", "-t"),
        ("#SBATCH hetjob", "heterogeneous job"),
        ("#SBATCH --time", "no value"),
        ('#SBATCH -C ""', "no value"),
        ("#SBATCH -Z", "-Z"),
    ],
)
def test_what_sbatch_refuses_is_refused_with_its_line(line, says):
    with pytest.raises(InputError, match=says) as caught:
        read("# a comment", line)
    assert caught.value.where == "a.sh:3"
    assert caught.value.hint


def test_nothing_counts_after_the_first_command():
    assert read("", "   ", "   # hi", "#SBATCH -n 3", ":", "#SBATCH -n 4") == {"ntasks": "3"}
    assert read("set -e", "#SBATCH -n 4") == {}


def test_of_two_the_last_counts():
    assert read("#SBATCH -n 2", "#SBATCH --ntasks=3") == {"ntasks": "3"}


def test_options_of_a_sites_plugins_are_kept():
    assert read("#SBATCH --container-image ubuntu --new=a b".removesuffix(" b")) == {
        "container-image": "ubuntu",
        "new": "a",
    }


@pytest.mark.parametrize(
    "line", ["#SBATCH --hold=x", "#SBATCH --mail-type=success", "#SBATCH --signal=x@y", "#SBATCH --begin=monday"]
)
def test_a_value_that_ends_sbatch_is_refused_where_it_stands(line):
    with pytest.raises(InputError) as caught:
        read(line)
    assert caught.value.where == "a.sh:2"
    assert "sbatch would refuse" in caught.value.hint


LATE = """#!/bin/bash
  #SBATCH --mem=1G
#sbatch --mem=2G
# SBATCH is what this is for
##SBATCH --mem=3G
#SBATCH -t 10
echo hi
#SBATCH --mem=4G
cat <<-EOF >other.sh
	#SBATCH --mem=5G
	EOF
n=$((1<<x))
#SBATCH --mem=6G
"""


def test_lines_that_sbatch_does_not_see_are_named(tmp_path):
    assert [number for number, _ in unseen(LATE)] == [2, 3, 8, 13]
    script = tmp_path / "a.sh"
    script.write_text(LATE)
    made = import_scripts([script])
    assert made.workflow.stages["a"].memory_bytes == 0
    told = "\n".join(made.notes)
    assert f"{script}:8, {script}:13: comes after the first command" in told
    assert f"{script}:2, {script}:3: is no option to sbatch" in told


def test_variables_of_this_shell_that_sbatch_would_read_are_named(tmp_path, monkeypatch):
    script = tmp_path / "a.sh"
    script.write_text("#!/bin/bash\n#SBATCH -p small\necho hi\n")
    for name, value in {"PARTITION": "big", "TIMELIMIT": "30", "ACCOUNT": "mine"}.items():
        monkeypatch.setenv(f"SBATCH_{name}", value)
    made = import_scripts([script])
    assert made.workflow.stages["a"].partition == "small"
    told = [note for note in made.notes if "SBATCH_" in note]
    assert len(told) == 2  # an account that the script leaves open is the run's, too
    assert any("--partition=big in place of --partition=small" in note for note in told)
    assert any("SBATCH_TIMELIMIT" in note for note in told)


@pytest.mark.parametrize(("line", "system"), [("#$ -pe smp 8", "Grid Engine"), ("#OAR -l nodes=2", "OAR")])
def test_options_of_other_batch_systems_are_named(tmp_path, line, system):
    script = tmp_path / "a.sh"
    script.write_text(f"#!/bin/bash\n{line}\n#SBATCH -t 10\n#$ costs\necho hi\n")
    [told] = [note for note in import_scripts([script]).notes if "neither" in note]
    assert told.startswith(f"{script}:2: {line.split()[0]} is an option of {system}")


def test_a_job_that_runs_no_script_is_no_stage(tmp_path):
    """Its processes come from elsewhere: the stage would wait for its script for good."""
    script = tmp_path / "a.sh"
    script.write_text("#!/bin/bash\n#SBATCH -t 10 --external\necho hi\n")
    with pytest.raises(InputError, match="runs no script"):
        import_scripts([script])

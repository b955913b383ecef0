"""The programs that a shell's text runs."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.spec.shell import FORMS, read_shell


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("srun -n 4 ./a -x | sort -k1 >out && echo hi", ["srun", "./a", "sort", "echo"]),
        ("A=1 B='x y' mpirun -np 4 --map-by core prog a; time -p foo", ["mpirun", "prog", "foo"]),
        ("mpirun -x PATH --mca btl tcp ./solver", ["mpirun", "./solver"]),
        ("srun --cpu-bind=cores -N2 --ntasks 4 ./p", ["srun", "./p"]),
        ("srun --odd 4 x", ["srun"]),
        ("timeout 10m nice -n 5 env A=1 third", ["timeout", "nice", "env", "third"]),
        ("ls | xargs -n1 -P 4 mDiff", ["ls", "xargs", "mDiff"]),
        ("for i in a b; do\n mProj $i || exit 1\ndone", ["mProj", "exit"]),
        ("case $x in a) foo;; b|c) bar -x;; esac; baz", ["foo", "bar", "baz"]),
        ("case $x in\n (a)\n  p1\n  ;;\n *) p2\nesac\np3", ["p1", "p2", "p3"]),
        ("if ! test -f x; then a; elif b; then c; else d; fi >log", ["test", "a", "b", "c", "d"]),
        ('while read l; do x "$(inner a)"; done <f', ["read", "inner", "x"]),
        ("f() { inner; }\nf x", ["inner", "f"]),
        ("cat <<EOF | wc\nnot a command $(date)\nEOF\nreal", ["cat", "wc", "real"]),
        ("cat <<-'E F'\n\tno\n\tE F\nreal", ["cat", "real"]),
        ("x=$(grep foo bar | wc -l); [ $x -gt 1 ] && [[ a && b ]] || die", ["grep", "wc", "[", "die"]),
        ("$TOOL x; ./${y}.sh; 'quoted prog' a; \"$X\" b", ["quoted prog"]),
        ("a=(1 2 3); run # comment; no\n# none", ["run"]),
        ("<in prog >out 2>&1 &", ["prog"]),
        ("diff <(left a) <(right b)", ["left", "right", "diff"]),
        ("echo $((1+2)) `old` 'it; is' \"a; b\"", ["old", "echo"]),
        ("awk '{print $1; x}' f", ["awk"]),
        ("command -v foo >/dev/null || { b; }", ["command", "b"]),
        ("x=1", []),
        ("( cd a && ./b )", ["cd", "./b"]),
    ],
)  # fmt: skip
def test_programs_are_found(text, programs):
    """Behind assignments, launchers, keywords, in pipelines and substitutions."""
    assert sorted(program.name for program in read_shell(text).programs) == sorted(programs)
    bash = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert bash.returncode == 0, "the test's text is no shell"


def test_lines_are_those_of_the_text():
    """Also after strings and documents over several lines."""
    text = "one 'a\nb' \\\n x\ntwo <<E\nbody\nE\nthree $(\nfour\n)\nfive"
    lines = {program.name: program.line for program in read_shell(text).programs}
    assert lines == {"one": 0, "two": 3, "three": 6, "four": 7, "five": 9}


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("python fit.py x; python3.11 -u -W ignore b/fit.py", ["fit.py", "b/fit.py"]),
        ("A=1 /bin/sh a.sh 1 && srun -n 2 bash -euo pipefail b.sh", ["a.sh", "b.sh"]),
        ("bash +x -l --norc a.sh | Rscript --vanilla b.R", ["a.sh", "b.R"]),
        ("sbatch --parsable -d afterok:1 --time=5 a.sbatch x", ["a.sbatch"]),
        ("python -m fit x; python -c 'y' z; bash -c 'a b'; bash -s <a; python - a <<E\nE", []),
        ("python --odd x.py; bash $script; python *.py; python <a.py; python 2>log", []),
        ("perl; echo python a.py; grep -f a.py python", []),
    ],
)
def test_files_that_interpreters_are_given_are_found(text, files):
    """Behind options that are known; not where it is no file, or only the shell can tell which."""
    assert [program.file for program in read_shell(text).programs if program.file] == files


def test_files_that_are_written_are_found():
    assert read_shell("cat >a.py <<E\nE\nx 2>&1 >>b; (y) &>c <d").writes == {"a.py", "b", "c"}


FORM_TEXTS = {
    "[[": "a\n[[ -n $x ]]",
    "((": "a\n((x++))",
    "time": "a\ntime sleep 0",
    "function": "a\nfunction f { b; }",
    "select": "a\nselect x in y; do z; done",
    "coproc": "a\ncoproc b",
    "&>": "a\nb &>log",
    "==": 'a\n[ "$x" == y ]',
    "pipefail": "a\nset -euo pipefail",
    "${!x}": "a\nb ${!y}",
    "${x/a/b}": 'a\nb "c ${name//.txt/}"',
    "${x:0:1}": "a\nb ${y:3}",
    "${x^}": "a\nb ${y^^}",
    "${x,}": "a\nb ${y,}",
    "${x[0]}": 'a\nb "${y[@]}"',
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_that_not_every_shell_knows_are_found(form):
    """Each on its line; what asks a shell for it succeeds in bash."""
    assert read_shell(FORM_TEXTS[form]).forms == {form: 1}
    assert subprocess.run(["bash", "-c", FORMS[form]], check=False).returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        "echo '[[ x ]]' \"((\" \\[[ # time x &> y ${x//a}",
        "a >log 2>&1 & echo $((1 + 2)) ${x:-a/b} ${#x} ${x%.*} ${x:=y} '${x[0]}'",
        '[ a = b ]; a == b; [ "==" ]; echo pipefail; set -e; time=1',
        "cat <<E\n[[ x ]]\nE",
    ],
)
def test_text_that_every_shell_knows_has_no_such_forms(text):
    assert read_shell(text).forms == {}
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


def test_what_changes_the_search_is_told():
    """Modules, sourced files, another PATH, another folder; functions are no programs."""
    assert read_shell("module load x\na").hides == "module"
    assert read_shell("if true; then . env.sh; fi").hides == "."
    assert read_shell("PATH=/x:$PATH a").hides == "PATH="
    assert read_shell("export A=1 PATH=/x").hides == "export PATH="
    assert read_shell("echo module load").hides == ""
    assert read_shell("cd x && ./a").moves
    assert read_shell("go() { a; }; function run { b; }").functions == {"go", "run"}


@given(st.text("ab $'\"`(){}[];|&<>\\\n#=EOF", max_size=40))
@settings(max_examples=500, deadline=1000)
def test_any_text_is_read_to_its_end(text):
    """No text makes it fail or never end."""
    read_shell(text)


@pytest.mark.parametrize("piece", ["$(", "`", "<(", '"$(', "$(a "])
def test_a_text_that_is_nothing_but_commands_within_commands_is_read_as_far_as_it_goes(piece):
    """Before, some hundred ended `asa check` as a bug, and many took a minute."""
    read_shell(piece * 5000)


def test_commands_within_commands_are_found():
    assert [program.name for program in read_shell("a $(b $(c $(d)))").programs] == ["d", "c", "b", "a"]

"""Which programs a shell's text runs."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.spec.shell import read_shell


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

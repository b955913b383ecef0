"""Files that numba and matplotlib read and keep are the user's own: no settings and no pickles of others."""

import os
import sys

import pytest
from accounts import GROUP

pytest.importorskip("numba")

from asa.core import compiled, compiled_files

KERNEL = "def add(a, b):\n    return a + b\n"
FIRST = "import numba, code_of_root; numba.njit(cache=True)(code_of_root.add)(1, 2)"
PLAIN = "from asa.core.compiled import kernel; import code_of_root; print(kernel(code_of_root.add)(1, 2))"
POISON = """
import pathlib, pickle, os, sys
class Planted:
    def __reduce__(self):
        return os.system, (f"id -u >> {sys.argv[2]}",)
for file in pathlib.Path(sys.argv[1]).rglob("*.nbi"):
    with file.open("rb") as opened:
        version = pickle.load(opened)
    file.unlink()
    file.write_bytes(pickle.dumps(version) + pickle.dumps(Planted()))
    print(file)
"""


@pytest.fixture
def place(accounts):
    """Where root keeps the source of a kernel, and strangers show that they ran something."""
    (accounts.place / "code").mkdir()
    (accounts.place / "code" / "code_of_root.py").write_text(KERNEL)
    (accounts.place / "proof").touch()
    (accounts.place / "proof").chmod(0o666)
    return accounts.place


def run(account, code, place, **options):
    env = {"PYTHONPATH": str(place / "code"), **options.pop("env", {})}
    done = account.run(sys.executable, "-P", "-c", code, env=env, umask=0o002, **options)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.full
def test_what_numba_keeps_as_the_umask_says_is_not_loaded(accounts, place):
    """Before, a member of the user's own group put pickles into `~/.cache/numba`, which the next prediction ran."""
    victim = accounts.victim
    os.chown(victim.home, victim.uid, GROUP)  # as where that is a user's first group
    victim.home.chmod(0o2755)
    victim.mkdir(victim.home / ".cache", 0o2755)
    run(victim, FIRST, place)
    done = accounts.stranger.run(sys.executable, "-c", POISON, victim.home / ".cache" / "numba", place / "proof")
    assert done.stdout.count(".nbi") == 1, done.stderr
    assert run(victim, PLAIN, place).stdout == "3\n"
    assert (place / "proof").read_text() == ""
    kept = victim.home / ".cache" / "asa" / "compiled"
    assert kept.stat().st_mode & 0o777 == 0o700
    assert len(list(kept.rglob("*.nbi"))) == 1


def test_nothing_compiled_is_kept_where_others_can_exchange_it(accounts):
    """Nor in a folder that was there, and that others can enter."""
    shared, victim = accounts.group_folder("shared"), accounts.victim
    place = compiled_files.own_folder.__wrapped__
    assert victim.call(place, "", env={"XDG_CACHE_HOME": str(shared)}, umask=0o002) is None
    assert victim.call(place, str(shared), umask=0o002) is None
    victim.home.chmod(0o755)
    own = victim.mkdir(victim.home / "own")
    victim.mkdir(own / "asa", 0o2755)
    assert victim.call(place, str(own)) is None
    (own / "asa").chmod(0o700)
    assert victim.call(place, str(own)) == str(own / "asa")
    assert victim.call(place, "", env={"XDG_CACHE_HOME": str(own)}, umask=0o002) == str(own / "asa" / "compiled")


def test_nothing_compiled_is_kept_beside_its_source_where_others_can_write(accounts):
    folder, victim = accounts.group_folder(), accounts.victim
    beside = compiled_files.is_ones_own.__wrapped__
    assert not victim.call(beside, folder)
    assert not victim.call(beside, accounts.place)
    assert not victim.call(beside, folder / "gone")
    assert victim.call(beside, victim.home)


SETTINGS = """
import warnings
warnings.simplefilter("error")
from asa.core import compiled
from numba import config
import yaml
print(config.CACHE_DIR or "none", yaml.safe_load("1"))
"""


def test_settings_of_the_folder_that_one_is_in_are_not_numbas(accounts, place):
    """Before, `.numba_config.yaml` named a folder of pickles."""
    pytest.importorskip("yaml")
    folder = accounts.group_folder()
    accounts.stranger.write(folder / ".numba_config.yaml", f"cache_dir: {accounts.stranger.home}\n")
    assert run(accounts.victim, SETTINGS, place, cwd=folder).stdout == "none 1\n"


DRAWN = """
from asa.core.drawing import new_figure
new_figure(1, 1)
from matplotlib import rcParams
print(rcParams["text.usetex"], rcParams["lines.linewidth"])
"""


@pytest.mark.full
@pytest.mark.parametrize("named", [False, True])
def test_settings_of_a_folder_of_others_do_not_draw(accounts, place, named):
    """Before, they had LaTeX run on a text of theirs."""
    pytest.importorskip("matplotlib")
    folder, victim = accounts.group_folder(), accounts.victim
    accounts.stranger.write(folder / "matplotlibrc", "text.usetex: True\n")
    own = victim.mkdir(victim.home / "own")
    victim.write(own / "matplotlibrc", "lines.linewidth: 7\n")
    env = {"MATPLOTLIBRC": str(own)} if named else {"MPLCONFIGDIR": str(own)}
    assert run(victim, DRAWN, place, cwd=folder, env=env).stdout == "False 7.0\n"
    victim.write(own / "matplotlibrc", "lines.linewidth: 6\n")
    assert run(victim, DRAWN, place, cwd=own, env={"MPLCONFIGDIR": str(victim.home)}).stdout == "False 6.0\n"


def _sees_yaml():
    sys.modules["yaml"] = mark = object()
    with compiled._without_settings_of_the_folder():
        return sys.modules["yaml"] is mark


def test_while_numba_is_imported_others_find_yaml_where_nobody_else_can_write(accounts):
    """A thread that imports it meanwhile would not; where others can write it is hidden all the same."""
    assert accounts.victim.call(_sees_yaml, cwd=accounts.victim.home)
    assert not accounts.victim.call(_sees_yaml, cwd=accounts.group_folder())

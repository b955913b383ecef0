"""Site files, and opening a facility by what a user says of it."""

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa import sites
from asa.backend import Capabilities, Facility
from asa.core import plugins
from asa.errors import InputError, UnknownNameError
from asa.runner import RunFolder, RunPlan
from asa.sites import open_facility, read_site, save_site, site_names, sites_folder
from asa.workflow import Stage


class Club:
    """A facility whose settings are in its signature."""

    notes = ()

    def __init__(self, url, *, members="few", poll="2s"):
        if poll == "never":
            raise InputError("is no duration", where="poll", hint="Correct it.")
        self.url, self.members, self.poll = url, members, poll

    def connect(self, folder):
        """Nothing to connect to."""


class OtherClub(Club):
    """One that is found where its door is open."""

    door = ""

    def __init__(self):
        super().__init__("none")

    @classmethod
    def found_here(cls):
        return cls.door


class Simulator:
    """No facility."""

    def __init__(self, system):
        self.system = system


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Three backends, and an empty folder of sites."""
    made = {"club": Club, "simulator": Simulator, "other-club": OtherClub}
    monkeypatch.setattr(plugins, "names", lambda _group: list(made))
    load = plugins.load
    monkeypatch.setattr(plugins, "load", lambda group, name: made[name] if name in made else load(group, name))
    monkeypatch.setattr(OtherClub, "door", "")
    monkeypatch.setenv("ASA_SITES", str(tmp_path / "sites"))
    (tmp_path / "sites").mkdir()
    return tmp_path / "sites"


def write(folder, name="home", text='backend = "club"\nurl = "here"\n'):
    file = folder / f"{name}.toml"
    file.write_text(text)
    return file


# ---------------------------------------------------------------------- where site files lie


def test_the_folder_is_where_the_user_says(monkeypatch, tmp_path):
    assert sites_folder() == tmp_path / "sites"
    monkeypatch.delenv("ASA_SITES")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert sites_folder() == tmp_path / "xdg" / "asa" / "sites"
    assert site_names() == []
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sites_folder() == tmp_path / ".config" / "asa" / "sites"


def test_a_site_is_named_by_its_stem_or_given_by_its_path(folder, tmp_path, monkeypatch):
    file = write(folder)
    assert site_names() == ["home"]
    assert read_site("home") == read_site(str(file))
    elsewhere = tmp_path / "mine.toml"
    elsewhere.write_text(file.read_text())
    monkeypatch.chdir(tmp_path)
    assert read_site("mine.toml").settings == {"url": "here"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("backend = club", "is not valid TOML"),
        ("backend = 3", "is no name"),
        ('backend = "x"\nprice = "much"', "'much' is no price of time"),
        ('backend = "x"\nprice = true', "True is no price of time"),
        ('backend = "x"\nprice = [3]', r"\[3\] is no price of time"),
        ('backend = "x"\nprice = -3', "is no price of time"),
        ("observed = 3", "is not as `asa doctor` writes it"),
        ('backend = "x"\nobserved.settings = 3', "is not as `asa doctor` writes it"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_a_broken_site_file_is_named(folder, text, words):
    file = folder / "home.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=words) as caught:
        read_site("home")
    assert str(file) in caught.value.where


def test_a_site_that_is_not_there_is_told_with_those_that_are(folder):
    with pytest.raises(UnknownNameError, match="asa doctor --save"):
        read_site("hme")
    write(folder)
    with pytest.raises(UnknownNameError, match="Did you mean 'home'"):
        read_site("hme")
    with pytest.raises(InputError, match="no such file"):
        read_site("./hme.toml")


# ---------------------------------------------------------------------- opening


def test_a_backend_is_opened_with_the_settings_given():
    opened = open_facility("club", None, {"url": "there", "members": "many"})
    assert isinstance(opened.facility, Facility)
    assert (opened.backend, opened.facility.url, opened.facility.members) == ("club", "there", "many")
    assert (opened.file, opened.why) == (None, "")


def test_the_later_said_wins(folder):
    """What was found, the site file, the command line."""
    write(folder, text='backend = "club"\nurl = "file"\n[observed.settings]\nurl = "found"\npoll = "9s"\n')
    facility = open_facility(None, "home", {"members": "many"}).facility
    assert (facility.url, facility.poll, facility.members) == ("file", "9s", "many")
    assert open_facility(None, "home", {"url": "line"}).facility.url == "line"


def test_what_was_opened_can_be_opened_again_from_what_is_written_down(folder):
    write(folder, text='backend = "club"\nurl = "file"\n[observed.settings]\npoll = "9s"\n')
    first = open_facility(None, "home", {"members": "many"})
    (folder / "home.toml").unlink()
    again = open_facility(first.backend, None, json.loads(json.dumps(first.settings)))
    assert vars(again.facility) == vars(first.facility)


def test_an_unknown_setting_is_refused_with_the_known_ones(folder):
    with pytest.raises(InputError, match="url, members, poll") as caught:
        open_facility("club", None, {"url": "x", "membres": "many"})
    assert caught.value.where == "--option membres"
    assert "Did you mean 'members'" in caught.value.hint
    file = write(folder, text='# mine\nbackend = "club"\nurl = "x"\nmembres = "many"\n')
    with pytest.raises(InputError) as caught:
        open_facility(None, "home")
    assert caught.value.where == f"{file}:4: membres"


def test_a_wrong_value_is_told_with_its_place(folder):
    file = write(folder, text='backend = "club"\nurl = "x"\n\npoll = "never"\n')
    with pytest.raises(InputError) as caught:
        open_facility(None, "home")
    assert caught.value.where == f"{file}:4: poll"
    with pytest.raises(InputError) as caught:
        open_facility(None, "home", {"poll": "never"})
    assert caught.value.where == "--option poll"


def test_what_is_no_facility_is_refused_with_those_that_are():
    with pytest.raises(InputError, match="club, other-club") as caught:
        open_facility("simulator", None, {"system": "x"})
    assert "simulator" in caught.value.where


def test_all_of_our_backends_can_be_connected_to(monkeypatch, tmp_path):
    monkeypatch.undo()
    assert {"slurm-rest", "slurm-cli", "simulated"} <= set(sites.facilities())
    simulated = open_facility("simulated", None, {"system": "hpc2n", "seed": "3", "age_accrues": "no"}).facility
    assert not simulated.connect(tmp_path).capabilities.age_accrues
    with pytest.raises(InputError, match="is gone with the client"):
        simulated.connect(tmp_path)
    with pytest.raises(InputError, match="'x' is no whole number"):
        open_facility("simulated", None, {"system": "hpc2n", "seed": "x"})


def test_a_site_is_for_one_backend(folder):
    write(folder)
    assert open_facility("club", "home").facility.url == "here"
    with pytest.raises(InputError, match="is for backend 'club'"):
        open_facility("other-club", "home")
    write(folder, text='url = "here"')
    with pytest.raises(InputError, match="does not say which backend"):
        open_facility(None, "home")
    assert open_facility("club", "home").facility.url == "here"


def test_the_only_site_is_taken(folder):
    write(folder)
    opened = open_facility()
    assert opened.file == folder / "home.toml"
    assert "only site" in opened.why


def test_of_several_sites_one_must_be_named(folder):
    write(folder)
    write(folder, "work")
    with pytest.raises(InputError, match="home, work"):
        open_facility()


def test_without_sites_a_backend_may_be_found_on_this_computer(monkeypatch):
    opened = open_facility()
    assert opened.backend == "local"
    assert "no batch system's commands" in opened.why
    monkeypatch.setattr(OtherClub, "door", "its door is open")
    opened = open_facility()
    assert (opened.backend, opened.why) == ("other-club", "its door is open")


# ---------------------------------------------------------------------- saving

FOUND = {"age_accrues": False, "poll": "5s"}
OBSERVED = {"when": "2026-01-02T03:04:05Z", "version": "24.11.5"}


def saved(site, settings=None, observed=OBSERVED, found=FOUND):
    return save_site(site, backend="club", settings=settings or {}, observed=observed, found=found)


def test_a_batch_system_with_several_backends_is_named_alone(folder, monkeypatch):
    """Its settings choose among them, then what is found here; a site file's own is the site's."""
    made = {"guild-wire": Club, "guild-door": OtherClub, "club": Club}
    monkeypatch.setattr(plugins, "names", lambda _group: list(made))
    monkeypatch.setattr(plugins, "load", lambda _group, name: made[name])
    assert open_facility("guild", None, {"url": "there"}).backend == "guild-wire"
    opened = open_facility("guild", None, {})  # no address: the other one needs none
    assert (opened.backend, opened.why) == ("guild-door", "guild-wire would take other options")
    monkeypatch.setattr(OtherClub, "door", "its door is open")
    assert open_facility("guild").why == "its door is open"
    with pytest.raises(InputError, match="is no duration"):  # of the one that knows these names
        open_facility("guild", None, {"url": "there", "poll": "never"})
    write(folder, text='backend = "guild-wire"\nurl = "file"\n')
    assert open_facility("guild", "home").backend == "guild-wire"
    write(folder, text='backend = "guild"\nurl = "file"\n')
    assert open_facility(None, "home").backend == "guild-wire"
    assert open_facility("club", None, {"url": "x"}).why == ""


def test_slurm_is_reached_by_its_commands_or_at_an_address(monkeypatch):
    monkeypatch.undo()  # the installed backends
    assert open_facility("slurm", None, {"url": "http://localhost:6820"}).backend == "slurm-rest"
    assert open_facility("slurm", None, {"prefix": "ssh login"}).backend == "slurm-cli"
    assert open_facility("slurm").backend == "slurm-cli"


def test_a_new_file_says_what_was_set_and_found(folder):
    path = saved("new", {"url": "here", "environment": {"A": 'b"\n', "C D": "1"}, "words": ["x", "y"]})
    assert path == folder / "new.toml"
    file = read_site("new")
    assert file.backend == "club"
    assert file.settings == {"url": "here", "environment": {"A": 'b"\n', "C D": "1"}, "words": ["x", "y"]}
    assert file.observed == {**OBSERVED, "settings": FOUND}
    assert file.found == FOUND


MINE = """\
# my site
backend = "club"   # the best
url = "here"  # by the river

# half of us
members = "few"

[environment]   # of jobs
A = "1"
"""


def test_what_the_user_wrote_stays_as_it_is(folder):
    write(folder, text=MINE)
    for _ in range(3):
        saved("home")
    text = (folder / "home.toml").read_text()
    assert text.startswith(MINE)
    assert text.count("[observed]") == 1
    assert read_site("home").settings["environment"] == {"A": "1"}
    assert not list(folder.glob(".*"))


def test_what_was_found_before_stays_until_it_is_found_anew(folder):
    write(folder, text=MINE)
    saved("home", found={"age_accrues": True, "poll": "9s"})
    saved("home", observed={"version": "25.05"}, found={"poll": "3s"})
    assert read_site("home").observed == {"version": "25.05", "settings": {"age_accrues": True, "poll": "3s"}}


def test_only_what_is_set_anew_changes(folder):
    write(folder, text=MINE)
    saved("home", {"members": "many", "partition": "x"})
    text = (folder / "home.toml").read_text()
    assert text.startswith(MINE.replace('members = "few"', 'members = "many"\npartition = "x"'))


def test_what_stands_after_the_observed_part_stays(folder):
    write(folder, text='[observed]\nversion = "1"\n[environment]\nA = "1"\n')
    saved("home", {"url": "x"})
    assert read_site("home").settings == {"url": "x", "environment": {"A": "1"}}


@pytest.mark.parametrize(
    "text",
    [
        'backend = "club"\nurl = """\na\nb"""\n',
        'backend = "club"\nwords = [\n[1],\n]\nurl = "y"\n',
        'backend = "club"\nobserved.version = "1"\nurl = "y"\n',
    ],
)
def test_a_file_that_cannot_be_changed_without_loss_is_left_alone(folder, text):
    file = write(folder, text=text)
    with pytest.raises(InputError, match="without loss"):
        saved("home", {"url": "x"})
    assert file.read_text() == text


def test_another_backends_file_is_left_alone(folder):
    file = write(folder, text='backend = "other-club"\n')
    with pytest.raises(InputError, match="is for backend"):
        saved("home")
    assert file.read_text() == 'backend = "other-club"\n'


def test_a_link_stays_one_and_a_mode_stays(folder, tmp_path):
    real = tmp_path / "real.toml"
    real.write_text(MINE)
    real.chmod(0o600)
    (folder / "home.toml").symlink_to(real)
    saved("home")
    assert (folder / "home.toml").is_symlink()
    assert "[observed]" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("asked", [{"site": "~nosuch/x"}, {"backend": "local", "settings": {"spool": "~nosuch/x"}}])
def test_a_home_folder_that_is_not_known_is_told(asked):
    with pytest.raises(InputError, match="no home folder that is known here"):
        open_facility(**asked)


def test_what_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        saved(str(tmp_path / "file" / "site.toml"))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
values = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@given(values)
def test_every_value_is_written_as_it_is_read(value):
    assert tomllib.loads(f"a = {sites._toml(value)}") == {"a": value}


def test_the_example_in_the_documentation_is_one(tmp_path):
    text = sites.__doc__.split("code-block:: toml\n")[1].split("Files are")[0]
    file = tmp_path / "doc.toml"
    file.write_text("\n".join(line.removeprefix("    ") for line in text.splitlines()))
    assert read_site(str(file)).backend == "slurm-rest"
    assert Path(file).exists()


@pytest.mark.parametrize(("variables", "mode"), [({"HF_TOKEN": "secret"}, 0o600), ({}, 0o600)])
def test_a_run_whose_settings_hold_variables_is_its_users_alone(tmp_path, variables, mode):
    """Their values, which may be secret, are kept in it, so that it can go on."""
    plan = RunPlan(
        id="abcd",
        name="flow",
        workflow="flow",
        stages=(Stage("a", cores=1, walltime_s=60, command="true"),),
        strategy="asa",
        backend="club",
        settings={"environment": variables},
        capabilities=Capabilities("x", 1, 1, age_accrues=False),
    )
    before = os.umask(0o022)
    try:
        run = RunFolder.create(tmp_path / "runs", plan)
        assert stat.S_IMODE((run.path / "run.json").stat().st_mode) == mode
        run.revise(bank="elsewhere")
    finally:
        os.umask(before)
    assert stat.S_IMODE((run.path / "run.json").stat().st_mode) == mode
    assert RunFolder(run.path).plan.settings == {"environment": variables}


def test_who_may_look_at_runs_is_an_option_too(tmp_path, monkeypatch):
    """It wins over the site file's, and is no setting of the backend's."""
    site = tmp_path / "site.toml"
    site.write_text('backend = "local"\n')
    opened = open_facility(None, str(site), {"share": "group"})
    assert (opened.share, "share" in opened.settings) == ("group", False)
    assert open_facility(None, str(site), {}).share == ""
    site.write_text('backend = "local"\nshare = "group"\n')
    assert open_facility(None, str(site), {}).share == "group"
    with pytest.raises(InputError, match="--option share"):
        open_facility(None, str(site), {"share": "all"})

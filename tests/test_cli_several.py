"""Several sites for one workflow: where it is forecast to end first, it runs."""

import pytest
from this_machine import Place

FLOW = '[[stage]]\nname = "a"\ncores = 64\nwalltime = "2h"\nexpected = "1h"\ncommand = "true"\n'


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    (tmp_path / "sites").mkdir()
    made.environment |= {"ASA_SITES": str(tmp_path / "sites")}
    (made.root / "flow.toml").write_text(f'name = "flow"\n{FLOW}')
    yield made
    made.close()


def site(place, name, text):
    (place.root / "sites" / f"{name}.toml").write_text(text)


def simulated(place, name, system, **settings):
    also = "".join(f"{key} = {value!r}\n" for key, value in settings.items())
    site(place, name, f'backend = "simulated"\nsystem = "{system}"\n{also}')


def dry(place, sites, *words, code=0):
    return place.asa("run", "flow.toml", "--site", sites, "--dry-run", "--bank", "none", *words, code=code)


def test_it_goes_where_it_is_forecast_to_end_first(place):
    """In whatever order the sites are named, and as it does where that site alone is named."""
    simulated(place, "busy", "hpc2n")
    simulated(place, "free", "uppmax")
    for sites in ("busy,free", "free, busy"):
        told = dry(place, sites)
        assert "→ free: expected to end in 1h0" in told.stderr
        assert "  busy: expected to end in " in told.stderr
        assert told.stdout == dry(place, "free").stdout
    assert "busy" not in dry(place, "busy,free", "--quiet").stderr


def test_sites_that_cannot_be_used_are_passed_over(place):
    simulated(place, "free", "uppmax")
    told = dry(place, "nowhere,free").stderr
    assert "nowhere: " in told
    assert "there is no site 'nowhere'" in told
    assert "→ free: " in told
    small = FLOW.replace("64", "100000")
    (place.root / "flow.toml").write_text(f'name = "flow"\n{small}')
    told = dry(place, "nowhere,free", code=2).stderr
    assert "no site can be used (nowhere: " in told
    assert "free: " in told
    assert "100000 cores" in told


def test_where_no_waits_are_known_the_first_is_taken_and_that_is_said(place):
    for name in ("one", "other"):
        site(place, name, f'backend = "slurm-cli"\noffline = true\nsystem = "{name}"\n')
    told = dry(place, "one,other", "--no-preflight").stderr
    assert "→ one: too few waits are known there: `asa learn --site one`" in told
    assert "  other: too few waits are known there" in told


def test_one_site_is_opened_without_a_forecast(place):
    simulated(place, "free", "uppmax")
    assert "expected to end in" not in dry(place, "free").stderr

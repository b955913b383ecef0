"""Results of a Slurm site's reports: capabilities, findings, histories."""

import json

import pytest
from asa.backends.slurm import facility
from asa.backends.slurm.examination import Examiner, _Findings, considerate_poll_s
from asa.backends.slurm.facility import SlurmCommands, SlurmFacility, SlurmRest
from asa.backends.slurm.link import MEMBERS, SlurmAbout, SlurmLimits, SlurmPartition, SlurmRecord
from asa.backends.slurm.probe import Prober, clock_offset_s
from asa.backends.slurm.settings import CommandSettings, RestSettings, check
from asa.backends.slurm.survey import age_accrues, capabilities, kills_invalid
from hypothesis import given
from hypothesis import strategies as st
from told_link import MULTIFACTOR, ToldLink, nodes, small_site

from asa.backend import Examinable, Facility, JobSpec, PartitionLimits, PastRun, RemembersRuns
from asa.errors import (
    AccessError,
    BackendError,
    InputError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    TraceError,
    UnavailableError,
)

SOCKET = "unix:///run/slurmrestd.sock"


def examined(link, settings=None, *, probe=False):
    settings = settings or CommandSettings()
    return Examiner(link, settings, clock=link.clock, sleep=link.sleep, timer=link.clock).examine(probe=probe)


def by_topic(examination):
    found = {finding.topic: finding for finding in examination.findings}
    assert len(found) == len(examination.findings), "each topic is told once"
    return found


# ---------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("model", "given_settings", "where", "words"),
    [
        (RestSettings, {}, "url", "missing"),
        (RestSettings, {"url": "slurm.example.org"}, "url", "https://"),
        (RestSettings, {"url": "https://me:secret@slurm.example.org"}, "url", "password"),
        (RestSettings, {"url": SOCKET, "api": "42"}, "api", "v0.0.42"),
        (RestSettings, {"url": SOCKET, "verify": "/no/such/file"}, "verify", "no file"),
        (RestSettings, {"url": SOCKET, "token_file": "token"}, "token_file", "whole path"),
        (RestSettings, {"url": SOCKET, "prefix": "ssh x"}, "prefix", "no setting"),
        (CommandSettings, {"prefix": 'ssh "x'}, "prefix", "shell"),
        (CommandSettings, {"poll": "30"}, "poll", "unit"),
        (CommandSettings, {"poll": 30}, "poll", "unit"),
        (CommandSettings, {"poll": "0s"}, "poll", "more than"),
        (CommandSettings, {"poll": "soon"}, "poll", "no duration"),
        (CommandSettings, {"environment": "A"}, "environment", "NAME=value"),
        (CommandSettings, {"cores_per_node": "0"}, "cores_per_node", "greater"),
        (CommandSettings, {"races": "never"}, "races", 'neither "yes" nor "no"'),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(model, given_settings, where, words):
    with pytest.raises(InputError) as caught:
        check(model, given_settings)
    assert caught.value.where == where
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_a_misspelt_setting_gets_the_right_one_told():
    with pytest.raises(InputError, match="Did you mean 'partition'"):
        SlurmCommands(prtition="batch")


@pytest.mark.parametrize("key", ["token", "jwt", "SLURM_JWT", "password"])
def test_a_secret_is_no_setting_and_is_not_repeated(key):
    with pytest.raises(InputError) as caught:
        SlurmRest(url=SOCKET, **{key: "eyJhbGciOi.J9"})
    assert "eyJ" not in str(caught.value)
    assert "token_file" in caught.value.hint
    assert caught.value.__cause__ is None


def test_two_sources_of_a_token_are_one_too_many():
    with pytest.raises(InputError, match="token_env and token_command"):
        SlurmRest(url=SOCKET, token_env="JWT", token_command="scontrol token")


def test_text_will_do_for_every_setting():
    settings = check(
        RestSettings,
        {"url": SOCKET, "poll": "5s", "max_poll": "2m", "cores_per_node": "28", "age_accrues": "no", "bearer": "yes",
         "verify": "false", "environment": "A=1,B=x=y", "token_command": "ssh login 'scontrol token'"},
    )  # fmt: skip
    assert (settings.poll, settings.max_poll, settings.cores_per_node) == (5.0, 120.0, 28)
    assert (settings.age_accrues, settings.bearer, settings.verify) == (False, True, False)
    assert settings.environment == {"A": "1", "B": "x=y"}
    assert settings.token_command == ("ssh", "login", "scontrol token")


def test_settings_are_read_as_sites_have_them_that_were_written_for_earlier_versions():
    former = check(CommandSettings, {"most_poll": "2m", "most_queued": 5})
    assert former == check(CommandSettings, {"max_poll": "2m", "max_queued": 5})


def test_what_ended_between_two_looks_is_still_remembered():
    assert check(CommandSettings, {}).longest_poll_s == 60.0
    assert check(CommandSettings, {"min_job_age": "40s"}).longest_poll_s == 20.0
    assert check(CommandSettings, {"min_job_age": "40s", "poll": "30s"}).longest_poll_s == 30.0
    assert check(CommandSettings, {"poll": "2m"}).longest_poll_s == 120.0


# ---------------------------------------------------------------------- what a site can do


@pytest.mark.parametrize(
    ("told", "accrues"),
    [
        ({}, None),
        ({"PriorityType": "priority/basic"}, True),
        ({"PriorityType": "priority/multifactor"}, False),
        ({"PriorityType": "priority/multifactor", "PriorityFlags": "SMALL_RELATIVE_TO_TIME,ACCRUE_ALWAYS"}, True),
        ({"PriorityType": "priority/multifactor", "PriorityFlags": ""}, False),
    ],
)
def test_the_configuration_tells_whether_age_accrues(told, accrues):
    assert age_accrues(told) is accrues


def test_the_configuration_tells_whether_hopeless_jobs_are_cancelled():
    assert kills_invalid({}) is None
    assert kills_invalid({"DependencyParameters": "(null)", "SchedulerParameters": "bf_continue"}) is False
    assert kills_invalid({"DependencyParameters": "kill_invalid_depend"}) is True
    assert kills_invalid({"SchedulerParameters": "bf_continue,kill_invalid_depend"}) is True


@pytest.mark.parametrize(
    ("config", "verdict"),
    [
        ({}, None),
        ({"PrivateData": "none"}, "good"),
        ({"PrivateData": "accounts,usage"}, "good"),
        ({"PrivateData": "jobs,usage"}, "note"),
    ],
)
def test_whether_the_jobs_of_others_are_hidden_is_found_out(config, verdict):
    found = _Findings()
    Examiner._privacy(found, config)
    assert [one.verdict for one in found.findings] == ([verdict] if verdict else [])
    assert all("your own jobs only" in one.consequence for one in found.findings if verdict == "note")


@pytest.mark.parametrize(("said", "races"), [({}, True), ({"races": "yes"}, True), ({"races": "no"}, False)])
def test_a_site_file_may_keep_jobs_from_racing(said, races):
    settings = CommandSettings(**said)
    assert capabilities("small", **small_site(), settings=settings, accrues=False).races is races


def test_capabilities_are_those_of_the_partitions():
    site = capabilities("small", **small_site(), settings=CommandSettings(), accrues=False)
    assert (site.system, site.partition, site.max_cores, site.cores_per_node) == ("small", "normal", 112, 28)
    assert site.partitions["debug"] == PartitionLimits(1800.0, 2, 56, 28, 2**30, 0)


@pytest.mark.parametrize(
    ("can_shrink", "settings", "told"),
    [(True, {}, (28, True)), (False, {}, (28, False)), (True, {"shrink": "no"}, (0, False))],
)
def test_a_job_that_nobody_can_shrink_from_outside_gives_nodes_back_by_its_own_script(can_shrink, settings, told):
    """For example with Slurm 22.05 over its REST API."""
    given = check(CommandSettings, settings)
    site = capabilities(
        "small", **small_site(), settings=given, accrues=False, changeable={"nodes"} if can_shrink else {}
    )
    assert (site.shrink_by, site.shrinks_from_outside) == told


def test_what_the_user_has_set_wins():
    settings = check(CommandSettings, {"partition": "debug", "max_cores": "50", "cores_per_node": "25"})
    site = capabilities("small", **small_site(), settings=settings, accrues=True)
    assert (site.partition, site.max_cores, site.cores_per_node, site.age_accrues) == ("debug", 50, 25, True)


def test_most_nodes_of_the_default_partition_say_how_wide_one_is():
    some = [*nodes(10, 28, "normal"), *nodes(2, 128, "normal", first=11), *nodes(20, 64, "other", first=13)]
    partitions = [
        SlurmPartition("normal", is_default=True),
        SlurmPartition("other"),
        SlurmPartition("old", is_up=False),
    ]
    site = capabilities("x", partitions, some, CommandSettings(), accrues=False)
    assert site.cores_per_node == 28
    assert site.partitions["normal"].cores_per_node == 128
    assert site.max_cores == 20 * 64
    assert site.partitions["old"].max_cores is None


def test_a_partition_that_is_down_is_not_the_largest():
    partitions = [SlurmPartition("a", cores=10), SlurmPartition("b", cores=1000, is_up=False)]
    assert capabilities("x", partitions, [], CommandSettings(), accrues=False).max_cores == 10


@pytest.mark.parametrize("named", ["b", "a,b", ""])
def test_a_partition_that_is_down_takes_what_it_takes_when_it_is_up(named):
    """As during a maintenance, in which others are smaller."""
    partitions = [
        SlurmPartition("a", cores=10),
        SlurmPartition("b", cores=1000, is_up=False, is_default=True),
    ]
    site = capabilities("x", partitions, [], CommandSettings(), accrues=False)
    assert site.impossible(JobSpec("big", 500, 3600.0, partition=named)) is None
    assert site.impossible(JobSpec("big", 2000, 3600.0, partition=named)) is not None
    assert site.impossible(JobSpec("big", 500, 3600.0, partition="a")) is not None


def test_a_partition_is_as_large_as_it_says_where_an_answer_lacks_some_of_its_nodes():
    site = capabilities(
        "small", **small_site() | {"nodes": nodes(2, 28, "normal")}, settings=CommandSettings(), accrues=False
    )
    assert site.max_cores == 112
    assert site.partitions["normal"].max_cores == 112


def test_a_partition_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="normal, debug"):
        capabilities("x", **small_site(), settings=CommandSettings(partition="gpu"), accrues=False)


def test_a_site_that_hides_its_size_must_be_told_it():
    with pytest.raises(InputError, match="max_cores"):
        capabilities("x", [], [], CommandSettings(), accrues=False)
    assert capabilities("x", [], [], CommandSettings(max_cores=64), accrues=False).max_cores == 64


# ---------------------------------------------------------------------- the facility


def test_both_ways_are_facilities_that_can_be_examined():
    for means in (SlurmRest(url=SOCKET), SlurmCommands()):
        assert isinstance(means, Facility)
        assert isinstance(means, Examinable)


def test_connecting_gives_a_backend_with_what_was_found_and_set(tmp_path):
    link = ToldLink(told_settings={**MULTIFACTOR, "PriorityFlags": "ACCRUE_ALWAYS"})
    settings = check(CommandSettings, {"system": "mine", "partition": "debug"})
    backend = SlurmFacility(settings, lambda: link).connect(tmp_path)
    assert backend.capabilities.system == "mine"
    assert backend.capabilities.partition == "debug"
    assert backend.capabilities.age_accrues
    assert not link.closed


def test_a_token_is_in_no_jobs_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_SITE_JWT", "secret")
    site = SlurmRest(url="http://slurm:6820", token_env="MY_SITE_JWT")
    told = ToldLink()
    site._open_link = lambda: told
    site.connect(tmp_path).submit(JobSpec("fit", 1, 60.0, command="true"))
    [(job, _)] = told.submitted.values()
    assert "secret" not in job.environment.values()
    assert "PATH" in job.environment


def test_a_token_in_clear_is_refused_and_the_doctor_tells_of_it(monkeypatch, tmp_path):
    monkeypatch.setenv("SLURM_JWT", "secret")
    refused = SlurmRest(url="http://slurm.invalid:6820").examine(probe=False).findings
    assert [(one.topic, one.verdict) for one in refused] == [("Access", "bad")]
    assert "in clear" in refused[0].told
    assert "https://" in refused[0].consequence
    with pytest.raises(InputError, match="in clear") as error:
        SlurmRest(url="http://slurm.invalid:6820").connect(tmp_path)
    assert error.value.where == "url"
    site = SlurmRest(url="http://slurm.invalid:6820", allow_insecure="true")
    site._open_link = ToldLink
    [told] = [one for one in site.examine(probe=False).findings if one.topic == "Secrecy"]
    assert told.verdict == "note"


def test_what_cannot_be_known_is_taken_as_no_and_said(tmp_path):
    site = SlurmFacility(CommandSettings(), lambda: ToldLink(told_settings={}))
    assert site.notes == []
    assert not site.connect(tmp_path).capabilities.age_accrues
    assert any("asa doctor --probe" in note for note in site.notes)


def test_a_site_that_is_not_there_leaves_nothing_open(tmp_path):
    link = ToldLink(fails={"partitions": UnavailableError("no answer")})
    with pytest.raises(UnavailableError):
        SlurmFacility(CommandSettings(), lambda: link).connect(tmp_path)
    assert link.closed


ACCOUNTS = (
    "Cluster|JobID|User|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|ReqCPUS|Reservation|Reason\n"
    "small|7|ada|normal|1799990000|1799990000|1799990300|1799990400|COMPLETED|60|4||None\n"
    "small|8|bob|debug|1799990100|1799990100|1799990100|1799990900|COMPLETED|60|8||None\n"
)


def test_its_history_is_what_accounting_tells():
    link = ToldLink(told_accounting=ACCOUNTS)
    history = SlurmFacility(CommandSettings(), lambda: link, clock=link.clock).history(link.clock_s - 86400.0)
    assert history.wait_s.tolist() == [300.0, 0.0]
    assert (history.system, history.source) == ("small", "the accounting of small")
    assert link.asked_accounting == [(pytest.approx(1.8e9 - 86400.0), pytest.approx(1.8e9, abs=1))]
    assert link.closed


def test_the_user_names_the_system_of_its_history():
    link = ToldLink(told_accounting=ACCOUNTS)
    assert SlurmFacility(CommandSettings(system="mine"), lambda: link).history(0.0).system == "mine"


def test_a_history_of_nothing_says_whose():
    link = ToldLink(told_accounting=ACCOUNTS.splitlines()[0] + "\n")
    with pytest.raises(TraceError, match="the accounting of small: has no job"):
        SlurmFacility(CommandSettings(), lambda: link).history(0.0)


def test_no_accounting_is_not_asked():
    link = ToldLink()
    with pytest.raises(BackendError, match="no accounting"):
        SlurmFacility(CommandSettings(accounting=False), lambda: link).history(0.0)
    assert not link.calls


def test_past_runs_are_of_jobs_that_completed_or_reached_their_walltimes():
    def record(number, state, name="prep", start_s=100.0, end_s=160.0):
        return SlurmRecord(number, name, "me", (state,), 50.0, start_s=start_s, end_s=end_s)

    told = [record("1", "COMPLETED"), record("2", "TIMEOUT", end_s=400.0), record("3", "FAILED"),
            record("4", "RUNNING", end_s=None), record("5", "CANCELLED", start_s=None),
            record("6", "COMPLETED", "other")]  # fmt: skip
    link = ToldLink(told_records=told)
    site = SlurmFacility(CommandSettings(), lambda: link)
    assert isinstance(site, RemembersRuns)
    assert site.past_runs(["prep"], 0.0) == [PastRun("prep", 60.0, 160.0, completed=True),
                                             PastRun("prep", 300.0, 400.0, completed=False)]  # fmt: skip
    assert link.closed
    assert site.past_runs(["prep"], 51.0) == []
    assert SlurmFacility(CommandSettings(accounting=False), lambda: link).past_runs(["prep"], 0.0) == []


@pytest.mark.parametrize(
    ("told", "kept", "arrays", "size"),
    [("4001", None, True, 4001), (None, None, True, 1001), ("4001", 7, True, 7), ("0", None, False, 0)],
)
def test_how_large_arrays_may_be_is_set_or_told_or_as_usual(told, kept, arrays, size, tmp_path):
    link = ToldLink()
    link.told_settings |= {"MaxArraySize": told} if told else {}
    site = SlurmFacility(CommandSettings(max_array_size=kept), lambda: link).connect(tmp_path).capabilities
    assert (site.arrays, site.max_array_size) == (arrays, size)
    assert examined(link).settings.get("max_array_size") == (int(told) if told else None)


# ---------------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("parameters", "together", "is_told"),
    [
        ("bf_continue,bf_max_job_array_resv=5", 100, True),
        ("bf_continue,bf_max_job_array_resv=5", 5, False),
        ("bf_max_job_array_resv=20", 100, False),
        ("(null)", 100, False),
    ],
)
def test_a_scheduler_that_plans_for_few_of_many_alike_is_told(parameters, together, is_told):
    link = ToldLink(changeable=frozenset({"nodes", MEMBERS}))
    link.told_settings |= {"SchedulerType": "sched/backfill", "SchedulerParameters": parameters}
    found = by_topic(examined(link, CommandSettings(max_together=together)))
    assert ("Plans" in found) == is_told
    if is_told:
        assert "bf_max_job_array_resv=5" in found["Plans"].told
        assert "max_together = 1" in found["Plans"].consequence


def test_what_to_do_about_an_option_that_is_refused():
    site = SlurmCommands()
    refused = "squeue: does not take the option -O: squeue: unrecognized option '-O'"
    assert "type -a squeue" in site.remedy(refused)
    assert not site.remedy("squeue: no answer: slurm_load_jobs error: Unable to contact slurm controller")


def test_a_good_site_is_told_as_one():
    waiting = SlurmRecord("5", "x", "you", ("PENDING",), 1.0, "Resources", expected_start_s=9.0)
    link = ToldLink(told_accounting=ACCOUNTS, told_queue=[waiting], accrues=True)
    link.told_settings |= {"PriorityFlags": "ACCRUE_ALWAYS", "DependencyParameters": "kill_invalid_depend"}
    examination = examined(link, probe=True)
    assert examination.is_usable
    found = by_topic(examination)
    assert {finding.verdict for finding in examination.findings} == {"good"}
    assert "22.05.8, cluster small" in found["Reachable"].told
    assert "normal: 4 nodes of 28 cores, up to 7d00h, default" in found["Partitions"].told
    assert "2 records of the last hour; 2 users" in found["Accounting"].told
    assert "1 of 1 jobs" in found["Start estimates"].told
    assert examination.settings == {"age_accrues": True, "kill_invalid_depend": True, "min_job_age": "300s"}
    assert (examination.observed["version"], examination.observed["accounting"]) == ("22.05.8", True)
    assert [examination.observed[key] for key in ("cores", "cores_per_node", "whole_nodes")] == [112, 28, False]


def test_what_is_found_can_be_set():
    """A site file keeps it, and the settings must take it."""
    link = ToldLink(look_takes_s=0.5, accrues=False, told_settings={})
    found = examined(link, probe=True).settings
    assert found["age_accrues"] is False
    assert found["poll"] == "25s"
    assert check(CommandSettings, found).poll == 25.0
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("error", "topic"), [(UnavailableError("no answer", hint="Wait."), "Reachable"), (AccessError("no"), "Access")]
)
@pytest.mark.parametrize("method", ["about", "partitions"])
def test_a_site_that_cannot_be_asked_is_a_finding(error, topic, method):
    examination = examined(ToldLink(fails={method: error}))
    assert not examination.is_usable
    last = examination.findings[-1]
    assert (last.topic, last.verdict, last.told) == (topic, "bad", error.message)


def test_a_controller_that_is_down_is_bad_and_no_more_is_asked():
    link = ToldLink(told_about=SlurmAbout("a test", controller_up=False))
    assert not examined(link, probe=True).is_usable
    assert link.calls == {"about": 1}


def test_a_partition_that_takes_no_jobs_is_bad():
    link = ToldLink()
    link.site["partitions"][0] = SlurmPartition("normal", is_default=True, is_up=False)
    assert by_topic(examined(link))["Partitions"].verdict == "bad"
    assert by_topic(examined(ToldLink(), CommandSettings(partition="gpu")))["Partitions"].verdict == "bad"


def test_a_default_that_is_not_told_must_be_set():
    """Most versions of the REST API do not report it."""
    link = ToldLink()
    link.site["partitions"] = [SlurmPartition("a", cores=8), SlurmPartition("b", cores=9)]
    found = by_topic(examined(link))
    assert found["Partitions"].verdict == "note"
    assert "set partition" in found["Partitions"].consequence
    assert by_topic(examined(link, CommandSettings(partition="b")))["Partitions"].verdict == "good"
    link.site["partitions"].pop()
    assert "Jobs go to 'a'" in by_topic(examined(link))["Partitions"].consequence


def test_many_partitions_are_summarised():
    link = ToldLink()
    link.site["partitions"] += [SlurmPartition(f"p{i}", cores=i, is_up=i % 2 == 0) for i in range(30)]
    told = by_topic(examined(link))["Partitions"].told.splitlines()
    assert len(told) == 9
    assert told[0].startswith("normal")
    assert told[-1] == "and 24 more, of which 9 are up"


@pytest.mark.parametrize(
    ("ends_in_s", "settings", "verdict"),
    [
        (300.0, {}, "bad"),
        (3600.0, {}, "note"),
        (7 * 86400.0, {}, "good"),
        (300.0, {"token_command": "scontrol token"}, "good"),
        (-5.0, {}, "bad"),
    ],
)
def test_how_long_the_token_lasts_matters_unless_it_is_renewed(ends_in_s, settings, verdict):
    link = ToldLink()
    link.told_about = SlurmAbout("a test", token_ends_s=link.clock_s + ends_in_s)
    found = by_topic(examined(link, check(RestSettings, {"url": SOCKET, **settings})))
    assert found["Access"].verdict == verdict


def test_a_site_without_accounting_can_be_used():
    link = ToldLink(told_about=SlurmAbout("a test"))
    examination = examined(link)
    assert examination.is_usable
    assert by_topic(examination)["Accounting"].verdict == "note"
    assert "accounting" not in examination.settings  # it may only be down today
    refusing = ToldLink(fails={"accounting": BackendError("not for you")})
    assert by_topic(examined(refusing))["Accounting"].told == "not for you"


def test_what_was_set_otherwise_than_it_is_is_said():
    link = ToldLink()
    settings = check(CommandSettings, {"age_accrues": "yes", "kill_invalid_depend": "yes", "min_job_age": "60s"})
    link.told_settings["DependencyParameters"] = "(null)"
    found = by_topic(examined(link, settings))
    for topic in ("Age rule", "Failed dependencies", "Ended jobs"):
        assert found[topic].verdict == "note"
        assert "wins" in found[topic].consequence


def test_what_is_set_is_believed_where_the_site_says_nothing():
    link = ToldLink(told_settings={})
    found = by_topic(examined(link, check(CommandSettings, {"age_accrues": "yes", "min_job_age": "60s"})))
    assert found["Age rule"].told == "jobs gain priority while they wait for a dependency, as set or found before"
    assert "1m00s after its end" in found["Ended jobs"].told
    assert "at least every 30s" in found["Ended jobs"].consequence


def test_a_client_less_patient_than_slurm_is_told():
    assert by_topic(examined(ToldLink(), check(CommandSettings, {"timeout": "5s"})))["Timeout"].verdict == "note"


@given(st.floats(0.0, 1e4))
def test_looks_take_a_fiftieth_of_the_time_at_most(look_s):
    poll_s = considerate_poll_s(look_s)
    assert 2.0 <= poll_s <= 60.0
    assert poll_s == 60.0 or look_s <= poll_s / 50 + 1e-9


def test_a_hasty_client_is_told():
    link = ToldLink(look_takes_s=0.5)
    found = by_topic(examined(link, check(CommandSettings, {"poll": "3s"})))
    assert found["A look"].verdict == "note"
    assert "every 25s is considerate" in found["A look"].consequence


# ---------------------------------------------------------------------- the probe


@pytest.mark.parametrize(("accrues", "verdict"), [(True, "good"), (False, "note"), (None, "note")])
def test_the_probe_tells_whether_age_accrues(accrues, verdict):
    link = ToldLink(told_settings={}, accrues=accrues, accrues_after_s=60.0)
    examination = examined(link, probe=True)
    assert by_topic(examination)["Age rule"].verdict == verdict
    assert examination.settings.get("age_accrues") is accrues
    assert link.cancelled == ["1"]


def test_the_probe_is_not_waited_for_where_the_configuration_tells():
    link = ToldLink(accrues=None)
    begin_s = link.clock_s
    examined(link, probe=True)
    assert link.clock_s - begin_s < 1.0


def test_the_probes_job_can_not_run():
    link = ToldLink()
    examined(link, CommandSettings(partition="debug", account="mine"), probe=True)
    (job, submit_s) = link.submitted["1"]
    assert job.held
    assert job.begin_s >= submit_s + 3000
    assert (job.cores, job.walltime_s, job.partition, job.account) == (1, 60.0, "debug", "mine")
    assert job.name.startswith("asa-probe")


def test_nothing_is_submitted_without_leave():
    link = ToldLink()
    examined(link, probe=False)
    assert not link.submitted


class Killed(BaseException):
    """The signal by which the client is killed, as an exception."""


@pytest.mark.parametrize("method", ["submit", "jobs"])
@pytest.mark.parametrize("error", [Killed(), KeyboardInterrupt(), SubmitInDoubtError("the answer was lost")])
def test_the_probes_job_is_cancelled_whatever_happens(method, error):
    link = ToldLink(fails={method: error})
    with pytest.raises(type(error)):
        Prober(link, CommandSettings(), clock=link.clock, sleep=link.sleep).probe(age=True)
    assert link.cancelled == ["1"]


@pytest.mark.parametrize("error", [SubmitRejectedError("no"), SubmitDeferredError("later"), UnavailableError("down")])
def test_a_job_that_was_not_accepted_is_not_looked_for(error):
    link = ToldLink(fails={"submit": error})
    examination = examined(link, probe=True)
    assert by_topic(examination)["Probe"].verdict == "note"
    assert examination.is_usable
    assert link.calls["named"] == link.calls["cancel"] == 0


def test_a_job_that_cannot_be_cancelled_is_told():
    link = ToldLink(fails={"cancel": UnavailableError("gone")})
    finding = by_topic(examined(link, probe=True))["Probe"]
    assert finding.verdict == "note"
    assert "scancel 1" in finding.consequence


@pytest.mark.parametrize("ahead_s", [-90.0, -2.0, 0.0, 2.0, 90.0])
def test_clocks_are_compared(ahead_s):
    examination = examined(ToldLink(ahead_s=ahead_s), probe=True)
    finding = by_topic(examination)["Clocks"]
    assert finding.verdict == ("note" if ahead_s else "good")
    assert examination.observed.get("clock_offset_s", 0.0) == pytest.approx(ahead_s, abs=1.01)


@given(st.floats(0, 1e6), st.floats(0, 5), st.floats(0, 1), st.floats(-1e3, 1e3))
def test_a_clock_offset_is_the_least_that_explains_a_date(before_s, took_s, share, ahead_s):
    after_s = before_s + took_s
    dated_s = float((before_s + share * took_s + ahead_s) // 1)
    offset_s = clock_offset_s(before_s, dated_s, after_s)
    assert abs(offset_s) <= abs(ahead_s) + 1e-3
    assert dated_s - after_s - 1e-3 <= offset_s <= dated_s + 1 - before_s + 1e-3


# ---------------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({}, "environment variable SLURM_JWT"),
        ({"token_env": "MINE"}, "environment variable MINE"),
        ({"token_file": "/run/token"}, "file /run/token"),
        ({"token_command": "scontrol token"}, "command scontrol"),
    ],
)
def test_a_token_comes_from_where_it_is_said(settings, source, monkeypatch):
    monkeypatch.setenv("SLURM_JWT", "a.b.c")
    assert source in repr(facility._token(check(RestSettings, {"url": SOCKET, **settings})))


def test_without_a_token_none_is_sent(monkeypatch):
    monkeypatch.delenv("SLURM_JWT", raising=False)
    assert facility._token(check(RestSettings, {"url": SOCKET})) is None


def test_a_proxys_way_of_taking_tokens_can_be_set(monkeypatch):
    monkeypatch.setenv("SLURM_JWT", "a.b.c")
    source = facility._token(check(RestSettings, {"url": SOCKET, "bearer": "yes"}))
    assert source.headers("me") == {"Authorization": "Bearer a.b.c"}


OWN_LIMITS = [
    SlurmLimits({"MaxJobs": "2", "MaxSubmitJobs": "3"}, user="ann", account="astro", qualities=("normal",)),
    SlurmLimits({"GrpTRES": "cpu=100"}, account="astro"),
    SlurmLimits({}, quality="normal"),
]


@pytest.mark.parametrize(
    ("enforce", "words"),
    [
        ("none", "does not enforce"),
        ("associations", "does not enforce"),
        ("associations,limits", "is not accepted"),
    ],
)
def test_a_user_s_own_limits_are_told(enforce, words):
    link = ToldLink(told_limits=OWN_LIMITS, told_settings={**MULTIFACTOR, "AccountingStorageEnforce": enforce})
    found = by_topic(examined(link))["Your limits"]
    assert found.told.splitlines() == [
        "you, with account astro: running jobs: 2 (MaxJobs), jobs in the queue: 3 (MaxSubmitJobs)",
        "all of account astro: at once: cpu=100 (GrpTRES)",
    ]
    assert words in found.consequence


def test_limits_that_are_not_shown_or_not_there_are_told():
    refused = ToldLink(fails={"limits": BackendError("Access/permission denied")})
    assert by_topic(examined(refused))["Your limits"].verdict == "note"
    assert "none is set" in by_topic(examined(ToldLink(told_limits=OWN_LIMITS[2:])))["Your limits"].told
    assert "no account of yours" in by_topic(examined(ToldLink(told_limits=[])))["Your limits"].told

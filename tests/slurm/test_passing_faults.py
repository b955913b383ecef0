"""Passing faults are no refusals: Slurm's real commands, made to fail for a while in many ways."""

import os
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.link import IdentifiedJob, SlurmJob
from slurm_runs import LINKS, SlurmRun, stage
from slurm_testbed import until

from asa.cli.standing import stand
from asa.errors import SubmitRejectedError, UnavailableError
from asa.records import Deferred, StageEnded, Submitted

EMPTY = ""
COUNT = 40


class Client:
    """A client's own copy of the cluster's configuration, and how it reaches Slurm with that."""

    def __init__(self, slurm, name):
        self.folder = slurm.folder(name)
        self.conf = self.folder / "slurm.conf"
        self.good = (slurm.root / "etc" / "slurm.conf").read_text()
        self.mend()
        its = f"SLURM_CONF={self.conf}"
        self.prefix = tuple(its if word.startswith("SLURM_CONF=") else word for word in slurm.prefix)

    def mend(self):
        self.write(self.good)

    def write(self, text, mode=0o644):
        """Replace a file at once, as an installation does."""
        new = self.folder / "new"
        new.write_text(text)
        new.chmod(mode)
        os.replace(new, self.conf)  # noqa: PTH105

    def with_setting(self, name, value):
        lines = [line for line in self.good.splitlines() if not line.lower().startswith(f"{name.lower()}=")]
        return "\n".join([*lines, f"{name}={value}", ""])

    @contextmanager
    def broken(self, text, mode=0o644):
        self.write(text, mode)
        try:
            yield
        finally:
            self.mend()


def job(folder, **changes):
    return replace(
        SlurmJob("asa-fault", "#!/bin/sh\nexit 0\n", str(folder), 1, 60.0, f"{folder}/o", f"{folder}/e"),
        environment={"PATH": "/usr/bin:/bin"},
        held=True,
        **changes,
    )


def test_a_configuration_that_is_empty_for_two_seconds_fails_no_stage(slurm):
    client = Client(slurm, "fan-conf")
    stages = [stage(f"s{number}", then="true") for number in range(COUNT)]
    one_by_one = {"max_together": "1"}  # else all are submitted before the configuration is empty
    run = SlurmRun(slurm, stages, strategy="per-stage", link="commands", prefix=client.prefix, **one_by_one)
    driven = run.client()

    def seen(kind):
        return [record for record in list(driven.records) if isinstance(record, kind)]

    until(lambda: len(seen(Submitted)) >= 5, what="the first jobs")
    with client.broken(EMPTY):
        until(lambda: seen(Deferred), what="a submission that is put off", within_s=20)
        time.sleep(1.0)
    result = driven.result()
    assert result.outcome == "completed", result.reason
    run.check()
    [reason] = {record.reason.partition("\n")[0] for record in seen(Deferred)}
    assert "Unable to process configuration file" in reason
    views = run.folder.state()[0].stages.values()
    assert all(view.attempts == 0 and view.resubmissions == 0 for view in views)


def faults(client, slurm):
    """Yield ways in which a configuration file is wrong for a while: its text, and its mode."""
    yield EMPTY, 0o644
    yield client.good, 0o000
    yield client.good[:60], 0o644  # cut off
    yield f"{client.good}\nNonsense=1\n", 0o644
    yield f"{client.good}\nwhat is this\n", 0o644
    yield client.with_setting("PluginDir", "/nowhere"), 0o644
    yield client.with_setting("PluginDir", client.folder), 0o644
    yield client.with_setting("AuthInfo", "socket=/nowhere/munge.socket"), 0o644
    yield f"{client.with_setting('PlugStackConfig', client.folder / 'plug-ins.conf')}", 0o644
    yield f"{client.good}\nCliFilterPlugins=cli_filter/nowhere\n", 0o644


def test_each_fault_of_the_configuration_passes(slurm):
    """During it no request counts as refused and no job as unknown; afterwards all works."""
    client = Client(slurm, "faults-conf")
    (client.folder / "plug-ins.conf").write_text("required /nowhere/spank.so\n")
    link = CommandLink(prefix=client.prefix, timeout_s=20.0)
    job_id = link.submit(job(client.folder))
    assert link.past(["1"]) is not None  # with half a configuration sacct says that there is no accounting
    for text, mode in faults(client, slurm):
        with client.broken(text, mode):
            with pytest.raises(UnavailableError) as caught:
                link.submit(job(client.folder))
            assert not caught.value.is_unexplained, caught.value
            if text.endswith("plug-ins.conf\n") or "CliFilter" in text:
                continue  # of submissions alone
            for ask in (link.jobs, link.named):
                with pytest.raises(UnavailableError):
                    ask([job_id])
            with suppress(UnavailableError):  # sacct may have a socket of its own to munged
                assert link.past([job_id])
            [error] = link.cancel([IdentifiedJob(job_id, "asa-fault")]).values()
            assert isinstance(error, UnavailableError)
    assert link.jobs([job_id])[job_id].states[0] == "PENDING"
    assert not link.cancel([IdentifiedJob(job_id, "asa-fault")])
    assert set(slurm.run("squeue", "-h", "-n", "asa-fault", "-o", "%i").split()) <= {job_id}


@pytest.mark.parametrize(
    "command",
    [
        'ulimit -n 3; exec "$0" "$@"',
        'export LD_LIBRARY_PATH=FOLDER; exec "$0" "$@"',
        'PATH=/nowhere; export PATH; exec "$0" "$@"',
    ],
)
def test_each_fault_of_the_host_passes(slurm, command):
    """Too many files are open, a library cannot be read, the programs are away."""
    folder = slurm.folder(f"host{abs(hash(command))}")
    (folder / "libslurmfull.so").touch()
    link = CommandLink(prefix=[*slurm.prefix, "sh", "-c", command.replace("FOLDER", str(folder))], timeout_s=20.0)
    with pytest.raises(UnavailableError) as caught:
        link.submit(job(folder))
    assert not caught.value.is_unexplained
    for ask in (link.jobs, link.named):
        with pytest.raises(UnavailableError):
            ask(["1"])
    [error] = link.cancel([IdentifiedJob("1", "x")]).values()
    assert isinstance(error, UnavailableError)


def test_the_controller_that_is_away_refuses_nothing(slurm):
    folder = slurm.folder("away")
    link = CommandLink(prefix=slurm.prefix, timeout_s=30.0)
    slurm.stop_controller()
    try:
        with pytest.raises(UnavailableError) as caught:
            link.submit(job(folder))
        assert not caught.value.is_unexplained
    finally:
        slurm.start_controller()


@pytest.mark.parametrize(
    "options",
    [
        ("--nonsense",), ("--partition=nowhere",), ("--constraint=nothing",), ("--gres=nonsense:4",),
        ("--nodelist=nonode",), ("--signal=XYZ",), ("--begin=never",), ("--reservation=none",), ("--hint=zz",),
        ("--switches=x@y",), ("--mail-type=x",), ("--open-mode=zz",), ("--batch=zz",), ("--parsable=x",),
        ("--deadline=xx",), ("--acctg-freq=zz",), ("--license=zz",), ("--profile=zz",), ("--threads-per-core=x",),
    ],
    ids=lambda options: options[0],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_a_refusal_at_once(slurm, options):
    folder = slurm.folder(f"refused{abs(hash(options))}")
    link = CommandLink(prefix=slurm.prefix, timeout_s=20.0)
    with pytest.raises(SubmitRejectedError):
        link.submit(job(folder, options=options))


def deferred(run):
    """Return why stages are deferred, by their names."""
    state, records = run.folder.state()
    standing = stand(run.folder, state, records, time.time())
    return {one.stage: one.put_off for one in standing.stages if one.put_off_s is not None}


@pytest.mark.parametrize("link", LINKS)
def test_a_partition_that_is_inactive_holds_up_only_its_own_stages(slurm, link):
    """The run's other stages complete meanwhile, and these once the partition is up."""
    stages = [
        stage("first", partition="debug"),
        stage("second", partition="debug"),
        stage("behind", ["first"]),
        stage("a"),
        stage("b", "a"),
    ]
    run = SlurmRun(slurm, stages, strategy="chained", link=link)
    slurm.run_as_root("scontrol", "update", "partitionname=debug", "state=INACTIVE")
    try:
        driven = run.client()
        driven.saw(StageEnded, "b")
        driven.saw(Deferred, "second")
        until(lambda: set(deferred(run)) == {"first", "second"}, what="both, while none is being submitted")
        assert all("not available" in why for why in deferred(run).values())
        asked = {name for record in driven.records if isinstance(record, Submitted) for name in record.stages}
        assert asked == {"a", "b"}
    finally:
        slurm.run_as_root("scontrol", "update", "partitionname=debug", "state=UP")
    assert driven.result().outcome == "completed"
    run.check()

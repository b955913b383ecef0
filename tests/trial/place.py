"""The place of a trial: a folder, and a cluster of its own or this machine, with other users."""

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from slurm_testbed import Testbed, trust

from . import between
from .draw import CORES_PER_NODE, NODES, PAIR, Trial
from .strangers import MARKED, Elsewhere, Strangers

PAYLOAD = Path(__file__).with_name("step.sh")
OTHER = "other"  # what the jobs are called that are not the run's
_WAITS = 300  # in the bank at the beginning
_LEARNS, _LEARNED = threading.Lock(), dict[tuple[str, ...], dict[str, bytes]]()


class Place:
    """The machine itself, for the backend `local`; for Slurm see `Cluster`."""

    disk_options = "size=6m,mode=755"
    systems: tuple[str, ...] = ("testbed",)  # whose waits are known at the beginning

    def __init__(self, trial: Trial, root: Path, asa: str) -> None:
        self.trial, self.root, self.asa = trial, root, asa
        self.work, self.disk, self.bank, self.tmp = (root / "jobs" / name for name in ("work", "disk", "bank", "tmp"))
        self.disks = [self.disk, self.bank, *[self.tmp] * trial.site.small_tmp]
        self.numbers: dict[str, str] = {}  # of elements of arrays, which payloads know as $SLURM_JOB_ID

    def start(self) -> None:
        """Make the folders: runs lie on a small disk of their own, marks on another."""
        self.work.mkdir(parents=True)
        trust(self.root)
        for mounted in self.disks:
            mounted.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", self.disk_options, "asa-trial", mounted], check=True)
        for folder in (self.root, self.root / "jobs", self.work):
            folder.chmod(0o777)
        shutil.copy(PAYLOAD, self.work / "step.sh")
        (self.work / "marks").touch()
        (self.work / "marks").chmod(0o666)
        self._fill_bank()

    def stop(self) -> None:
        """End what is left of payloads, and delete everything."""
        for _, pid in self.payloads():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for mounted in self.disks:
            subprocess.run(["umount", "-l", mounted], check=False, capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def settings(self) -> list[str]:
        """Return the settings of the place for `asa run`."""
        return ["--backend", "local", "--set", f"cores={NODES * CORES_PER_NODE}"]

    def clock(self) -> dict[str, str]:
        """What makes a client's clock wrong, where there is a compiler for it."""
        wrong, library = self.trial.site.clock_off_s, self.work / "skew.so"
        if wrong and shutil.which("cc") and not library.exists():
            compiles = ["cc", "-shared", "-fPIC", "-o", library, PAYLOAD.with_name("skew.c"), "-ldl"]
            subprocess.run(compiles, check=True, capture_output=True)
        return {"LD_PRELOAD": str(library), "ASA_TRIAL_SKEW": str(wrong)} if library.exists() else {}

    @property
    def marks(self) -> str:
        """What payloads have noted so far."""
        with suppress(FileNotFoundError):
            return (self.work / "marks").read_text(errors="replace")
        return ""

    def payloads(self) -> list[tuple[str, int]]:
        """Return which executions are alive: job and process."""
        alive = []
        for line in self.marks.splitlines():
            words = line.split()
            if words[0] == "start" and len(words) == 9:
                with suppress(OSError):
                    told = Path(f"/proc/{words[7]}/stat").read_text().rpartition(")")[2].split()
                    if told[0] != "Z" and told[19] == words[8]:
                        alive.append((words[3], int(words[7])))
        return alive

    def jobs(self, *states: str) -> list[str]:
        """Return the run's jobs in given states."""
        return [job for job, _ in self.payloads()] if "RUNNING" in states else []

    def left(self) -> list[str]:
        """Return what of the run is still in the queue."""
        return self.jobs("RUNNING")

    def told(self) -> dict[str, str]:
        """Return what the place itself says of what happened, by the name of a file."""
        return {}

    def touched(self) -> list[str]:
        """Return what was done to jobs that are not the run's."""
        return []

    def astray(self) -> list[str]:
        """Return which jobs were submitted to another cluster."""
        return []

    def fill_disk(self, disk: Path | None = None) -> None:
        """Leave no byte on a disk, that on which the runs lie."""
        disk = disk or self.disk
        with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        with suppress(OSError), (disk / "ballast").open("ab", buffering=0) as file:
            while file.write(b"x"):
                pass

    def empty_disk(self, disk: Path | None = None) -> None:
        ((disk or self.disk) / "ballast").unlink(missing_ok=True)

    def _fill_bank(self) -> None:
        """Have asa learn past jobs of the cluster, once, so that strategies have waits to reckon with."""
        with _LEARNS:
            if self.systems not in _LEARNED:
                for system in self.systems:
                    self._learn(system)
                _LEARNED[self.systems] = {file.name: file.read_bytes() for file in self.bank.iterdir()}
        for name, data in _LEARNED[self.systems].items():
            (self.bank / name).write_bytes(data)

    def _learn(self, system: str) -> None:
        chance, lines = (
            random.Random("waits"),
            ["Cluster|JobID|User|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|ReqCPUS"],
        )
        since = int(time.time()) - _WAITS * 60
        for number in range(_WAITS):
            submit = since + 60 * number
            start = submit + round(chance.lognormvariate(2.3, 0.8))
            limit, cores = chance.choice([1, 2, 5]), chance.choice([1, 2, 4, 8, 12, 16])
            lines.append(
                f"{system}|{number}|root|normal|{submit}|{submit}|{start}|{start + 9}|COMPLETED|{limit}|{cores}"
            )
        (self.work / "jobs.txt").write_text("\n".join(lines) + "\n")
        learn = [self.asa, "learn", "--from", "jobs.txt", "--bank", str(self.bank), "--system", system]
        subprocess.run(learn, cwd=self.work, check=True, capture_output=True)


class Cluster(Place):
    """Slurm's real daemons, whose jobs are another user's than the client."""

    disk_options = "size=6m,mode=777"

    def __init__(self, trial: Trial, root: Path, asa: str) -> None:
        super().__init__(trial, root, asa)
        conf = f"MinJobAge={trial.site.min_job_age_s}\nSlurmdTimeout=12\nPriorityWeightJobSize=0\n"
        conf += f"KillWait={trial.site.kill_wait_s}\n"
        conf += f"PreemptType=preempt/partition_prio\nPreemptMode={trial.site.preempts}\n"
        conf += "PartitionName=urgent Nodes=ALL PriorityTier=10 MaxTime=10 State=UP\n"
        conf += "AccountingStorageEnforce=associations,limits" * trial.site.accounting
        self.slurm = Testbed(
            root,
            release=trial.version,
            accounting=trial.site.accounting,
            nodes=NODES,
            cores_per_node=CORES_PER_NODE,
            accrue=trial.site.accrue,
            conf=conf,
            cluster=self.systems[0],
        )
        self._load = OtherUser(self)
        self._tokens: threading.Thread | None = None
        self._over = threading.Event()
        self.relay: between.Relay | None = None
        self.strangers = Strangers(self.slurm, [step.name for step in trial.steps], trial.seed) if trial.world else None
        is_lent = any(fault.kind == "other_cluster" for fault in trial.faults)
        self.elsewhere = Elsewhere(root.with_name(f"{root.name}e"), trial.version, trial.seed) if is_lent else None

    def start(self) -> None:
        for _ in range(3):
            super().start()
            self.slurm.start()
            if self.work.exists():
                break
            self.slurm.stop()  # it started at a second attempt only; the first took the folders with it
            super().stop()
        else:
            raise RuntimeError("the cluster did not start at its first attempt, three times")
        if self.elsewhere is not None:
            self.elsewhere.start()
        self._write_prefix()
        if self.trial.site.short_tokens:
            self._renew()
            self._tokens = threading.Thread(target=self._keep_token, daemon=True)
            self._tokens.start()
        elif self.trial.link == "rest":
            self.relay = between.Relay(self.root / "relay.sock", self.slurm.socket)
            threading.Thread(target=self.relay.serve_forever, daemon=True).start()
        self._load.start()
        if self.strangers is not None:
            self.strangers.start()

    def stop(self) -> None:
        self._over.set()
        if self.relay is not None:
            self.relay.shutdown()
            self.relay.server_close()
        if self.strangers is not None:
            self.strangers.end()
        if self.elsewhere is not None:
            self.elsewhere.stop()
        self._load.over.set()
        if self._load.is_alive():
            self._load.join()
        with suppress(Exception):
            self.slurm.stop()
        super().stop()

    def settings(self) -> list[str]:
        settings = {"system": "testbed", "poll": "1s", "max_poll": "4s", "partition": "normal"}
        if self.trial.link == "cli":
            settings["prefix"] = str(self.root / "as-user")
        elif self.trial.site.short_tokens:
            settings |= {"url": str(self.slurm.url), "token_file": str(self.root / "token"), "user": self.slurm.user}
            settings["served_by"] = self.slurm.user
        else:
            settings["url"] = f"unix://{self.root}/relay.sock"
        backend = "slurm-cli" if self.trial.link == "cli" else "slurm-rest"
        return ["--backend", backend, *(word for item in settings.items() for word in ("--set", "=".join(item)))]

    @property
    def user(self) -> str:
        """Whose jobs the run's are: root's where they run Python, which may be where only root gets."""
        return "root" if self.trial.strategy == "pool" else self.slurm.user

    # ------------------------------------------------------------------ what there is

    def as_root(self, *command: str) -> str:
        """Run a command as the cluster's administrator."""
        return self.slurm.run_as_root(*command)

    def jobs(self, *states: str) -> list[str]:
        return self._jobs_of(self.slurm, *states)

    def _jobs_of(self, slurm: Testbed, *states: str) -> list[str]:
        told = slurm.run_as_root("squeue", "-h", "-o", "%A|%i|%T|%k|%j", check=False)
        lines = [line.split("|", 4) for line in told.splitlines() if line.count("|") >= 4]
        self.numbers |= {job: number for number, job, *_ in lines}
        return [
            job
            for _, job, state, comment, name in lines
            if name != OTHER and comment != MARKED and (not states or state in states)
        ]

    def left(self) -> list[str]:
        return self.jobs()

    def jobs_on(self, node: str) -> list[str]:
        told = self.slurm.run_as_root("squeue", "-h", "-w", node, "-o", "%A|%i", check=False).split()
        numbers = {job: number for number, _, job in (line.partition("|") for line in told)}
        self.numbers |= numbers
        return [*numbers]

    def nodes_of(self, job: str) -> list[str]:
        told = self.slurm.run_as_root("squeue", "-h", "-j", job, "-o", "%N", check=False).strip()
        if not told:
            return []
        return self.slurm.run_as_root("scontrol", "show", "hostnames", told, check=False).split()

    def told(self) -> dict[str, str]:
        files = {"jobs.txt": self.slurm.run_as_root("scontrol", "-d", "show", "job", check=False)}
        if self.trial.site.accounting:
            what = "jobid,jobname%30,state,exitcode,submit,eligible,start,end,restarts,ncpus,nodelist"
            files["sacct.txt"] = self.slurm.run_as_root("sacct", "-a", "-D", "-o", what, check=False)
        for log in (self.root / "log").glob("*.log"):
            files[log.name] = log.read_text(errors="replace")
        return files

    # ------------------------------------------------------------------ daemons

    def pid(self, daemon: str) -> int:
        return int((self.root / "run" / f"{daemon}.pid").read_text())

    def kill(self, daemon: str) -> "Respawn":
        """Kill a daemon at once; return what starts it again as it was."""
        respawn = Respawn(self, daemon, self.pid(daemon))
        os.kill(respawn.pid, signal.SIGKILL)
        return respawn

    def crash(self, node: str) -> "Respawn":
        """End a node with all that runs on it, as when its power fails."""
        log = f"slurmd-{node}.log"
        respawn = self.kill(f"slurmd-{node}")
        for told in Path("/proc").glob("[0-9]*/comm"):
            with suppress(OSError):
                if told.read_text().strip() == "slurmstepd" and any(
                    str(fd.readlink()).endswith(f"{self.root}/log/{log}") for fd in (told.parent / "fd").iterdir()
                ):
                    os.kill(int(told.parent.name), signal.SIGKILL)
        mine = f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.root}/etc/slurm.conf".encode()
        for told in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if set(mine) <= set(told.read_bytes().split(b"\0")):
                    os.kill(int(told.parent.name), signal.SIGKILL)
        return respawn

    def spoil(self, spoil: between.Spoil | None) -> None:
        """Let answers to the client be spoiled in some way from now on, or no more."""
        if self.relay is not None:
            self.relay.spoil = spoil
        elif spoil is not None:
            spoil.write(self.root / "spoil")
        else:
            (self.root / "spoil").unlink(missing_ok=True)

    def lead_elsewhere(self, *, there: bool) -> None:
        """Let the client reach the other cluster, or its own."""
        assert self.elsewhere is not None
        if self.relay is not None:
            self.relay.to = self.elsewhere.slurm.socket if there else self.slurm.socket
        elif there:
            (self.root / "elsewhere").touch()
        else:
            (self.root / "elsewhere").unlink(missing_ok=True)

    def forget_all(self) -> None:
        """Let the controller begin with nothing, and with its first number; what runs is killed as nobody's."""
        self.slurm.stop_controller()
        if self.strangers is not None:
            self.strangers.are_gone()
        for path in (self.root / "state").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.slurm.start_controller()

    def touched(self) -> list[str]:
        """Return what was done to jobs that are not the run's."""
        told = self.strangers.touched() if self.strangers is not None else []
        return told + (self.elsewhere.touched() if self.elsewhere is not None else [])

    def astray(self) -> list[str]:
        """Return which jobs were submitted to another cluster."""
        return self.elsewhere.astray() if self.elsewhere is not None else []

    def relieve(self) -> None:
        """Let nodes take jobs again that Slurm drained when its controller came back, as an administrator does."""
        told = self.slurm.run_as_root("sinfo", "-h", "-N", "-p", "normal", "-o", "%N %E", check=False)
        drained = {line.split()[0] for line in told.splitlines() if "Duplicate jobid" in line}
        if drained:
            names = ",".join(sorted(drained))
            self.slurm.run_as_root("scontrol", "update", f"nodename={names}", "state=resume", check=False)

    def mend(self) -> None:
        """Let all nodes take jobs."""
        told = self.slurm.run_as_root("sinfo", "-h", "-N", "-p", "normal", "-o", "%N %t", check=False)
        bad = {line.split()[0] for line in told.splitlines() if any(word in line for word in ("down", "drain", "drng"))}
        if bad:
            self.slurm.run_as_root(
                "scontrol", "update", f"nodename={','.join(sorted(bad))}", "state=resume", check=False
            )

    # ------------------------------------------------------------------ how the client gets there

    def _write_prefix(self) -> None:
        """Write what runs a command as the user; files beside it make commands late, or their answers lost."""
        path = self.root / "as-user"
        slow, lost, spoil, silent = (self.root / name for name in ("slow", "lost", "spoil", "silent"))
        there = self.slurm.env["TB_AS_ROOT"].split() if self.user == "root" else self.slurm.prefix
        other = self.elsewhere.slurm.prefix if self.elsewhere is not None else there
        lines = [
            "#!/bin/bash",
            "unset LD_PRELOAD",
            f"there=({shlex.join(there)})",
            f"[ -e {self.root}/elsewhere ] && there=({shlex.join(other)})",
            f'[ -e {spoil} ] && there=({shlex.join([sys.executable, between.__file__])} {spoil} "${{there[@]}}")',
            f'[ -e {slow} ] && case " $* " in $(cat {slow})) sleep 4;; esac',
            f'[ -e {silent} ] && case " $* " in *" squeue "*$(cat {silent})*)',
            '  echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1;; esac',
            f'if [ -e {lost} ] && [[ " $* " = *" sbatch "* ]]; then',
            '  "${there[@]}" "$@" >/dev/null 2>&1',
            '  echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1',
            "fi",
            'exec "${there[@]}" "$@"',
        ]
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o755)

    def _renew(self) -> None:
        with suppress(Exception):
            token = self.slurm.token(lifespan_s=20)
            (self.root / "token.new").write_text(token + "\n")
            (self.root / "token.new").rename(self.root / "token")

    def _keep_token(self) -> None:
        while not self._over.wait(10.0):
            self._renew()


class Pair(Cluster):
    """Two clusters of one accounting; what is said of a job of the second one names it, as in ``12@small``."""

    systems = PAIR

    def __init__(self, trial: Trial, root: Path, asa: str) -> None:
        super().__init__(trial, root, asa)
        self.other = replace(self.slurm, root=root.with_name(f"{root.name}s"), cluster=PAIR[1], joins=root, env={})
        self.others_load = OtherUser(self, on=self.other)
        self.other_relay: between.Relay | None = None

    def start(self) -> None:
        super().start()
        self.other.start()
        if self.relay is not None:
            self.other_relay = between.Relay(self.root / "other.sock", self.other.socket)
            threading.Thread(target=self.other_relay.serve_forever, daemon=True).start()
        self.others_load.start()

    def stop(self) -> None:
        self.others_load.over.set()
        if self.others_load.is_alive():
            self.others_load.join()
        if self.other_relay is not None:
            self.other_relay.shutdown()
            self.other_relay.server_close()
        with suppress(Exception):
            self.other.stop()
        super().stop()

    def settings(self) -> list[str]:
        lines = [f"clusters = {json.dumps(PAIR)}", 'poll = "1s"', 'max_poll = "4s"']
        lines += ['backend = "slurm"', 'moves = "20s"']
        if self.trial.link == "cli":
            lines.append(f'prefix = "{self.root}/as-user"')
        else:
            for name, socket in zip(PAIR, ("relay.sock", "other.sock"), strict=True):
                lines += [
                    f"[cluster.{name}]",
                    'backend = "slurm-rest"',
                    f'url = "unix://{self.root}/{socket}"',
                    f'system = "{name}"',
                ]
        (self.work / "both.toml").write_text("\n".join(lines) + "\n")
        return ["--site", "both.toml"]

    def as_root(self, *command: str) -> str:
        own = [word.removesuffix(_ON_OTHER) for word in command]
        return (self.slurm if own == [*command] else self.other).run_as_root(*own)

    def jobs(self, *states: str) -> list[str]:
        return super().jobs(*states) + [f"{job}{_ON_OTHER}" for job in self._jobs_of(self.other, *states)]

    def told(self) -> dict[str, str]:
        files = super().told()
        files["jobs-other.txt"] = self.other.run_as_root("scontrol", "-d", "show", "job", check=False)
        for log in (self.other.root / "log").glob("*.log"):
            files[f"other-{log.name}"] = log.read_text(errors="replace")
        return files

    def mend(self) -> None:
        super().mend()
        self.other.mend()

    def silence(self, name: str) -> None:
        """Let one of the two tell the client nothing of its queue; with no name, neither."""
        for relay, one in ((self.relay, PAIR[0]), (self.other_relay, PAIR[1])):
            if relay is not None:
                relay.spoil = between.Spoil("before", of=("squeue",)) if one == name else None
        if name:
            (self.root / "silent").write_text(name)
        else:
            (self.root / "silent").unlink(missing_ok=True)


_ON_OTHER = f"@{PAIR[1]}"


class Respawn:
    """A daemon as it was started, so that it can be again."""

    def __init__(self, cluster: Cluster, daemon: str, pid: int) -> None:
        self.cluster, self.daemon, self.pid = cluster, daemon, pid
        proc = Path(f"/proc/{pid}")
        self.argv = [os.fsdecode(word) for word in (proc / "cmdline").read_bytes().split(b"\0")[:-1]]
        pairs = [os.fsdecode(word).partition("=") for word in (proc / "environ").read_bytes().split(b"\0")[:-1]]
        self.env = {key: value for key, _, value in pairs}
        self.uid, self.gid = proc.stat().st_uid, proc.stat().st_gid

    def __call__(self) -> None:
        command = self.argv
        if self.uid:
            command = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", *command]
        if self.cluster.slurm.tree:
            command = ["nsenter", "-t", str(self.cluster.pid("munged")), "-m", "-r", "-w", "--", *command]
        (self.cluster.root / "run" / "rest" / "slurmrestd.sock").unlink(
            missing_ok=True
        ) if self.daemon == "slurmrestd" else None
        run = self.cluster.root / "run"
        with (self.cluster.root / "log" / f"{self.daemon}.out").open("ab") as out:
            process = subprocess.Popen(
                command,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                umask=0o022,
            )
        (run / f"{self.daemon}.pid").write_text(f"{process.pid}\n")
        born = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (run / f"{self.daemon}.start").write_text(f"{born}\n")


class OtherUser(threading.Thread):
    """Another user, who has some jobs in the queue for a while."""

    def __init__(self, cluster: Cluster, lasts_s: float = 30.0, *, on: Testbed | None = None) -> None:
        super().__init__(daemon=True)
        self.cluster, self.lasts_s, self.over = cluster, lasts_s, threading.Event()
        self.slurm = on or cluster.slurm
        self.random = random.Random(f"load {cluster.trial.seed}")

    def run(self) -> None:
        """Submit as soon as fewer wait; and let no job wait the two minutes for which Slurm keeps it when put back."""
        ends_s = time.monotonic() + self.lasts_s
        run = self.slurm.run_as_root
        seen = set[str]()  # not at once: slurmd may still have to tell of the first instance's end
        while not self.over.wait(2.0):
            with suppress(subprocess.TimeoutExpired):
                for line in run("squeue", "-h", "-t", "PD", "-o", "%i %r", check=False).splitlines():
                    if line.endswith(" BeginTime") and line in seen:
                        run("scontrol", "update", f"jobid={line.split()[0]}", "starttime=now", check=False)
                    seen.add(line)
                    if "requeued" in line and line.endswith("held"):  # whose launch failed; asa tells its user to
                        run("scontrol", "release", line.split()[0], check=False)
                if time.monotonic() > ends_s or not self.cluster.trial.site.load:
                    continue
                waiting = run("squeue", "-h", "-t", "PD", "-n", OTHER, check=False).splitlines()
                for _ in range(self.cluster.trial.site.load - len(waiting)):
                    cores, lasts = self.random.choice([1, 2, 4, 8, 16]), self.random.randint(2, 6)
                    run(
                        "sbatch",
                        "-Q",
                        "-J",
                        OTHER,
                        "-n",
                        str(cores),
                        "-t",
                        "1",
                        "-o",
                        "/dev/null",
                        "--wrap",
                        f"sleep {lasts}",
                        check=False,
                    )

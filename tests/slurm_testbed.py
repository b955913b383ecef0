"""A throw-away Slurm cluster of real daemons for tests, driven through `slurm/testbed.sh`."""

import atexit
import os
import pwd
import secrets
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

SCRIPT = Path(__file__).with_name("slurm") / "testbed.sh"
_GOOD = ("idle", "mix", "alloc", "comp")
RELEASES = OLDEST, _, NEWEST = ("22.05", "24.11", "26.05")
"""Releases of Slurm that asa is tried with: the oldest is the host's own (as of Debian 12), others are in trees."""
TREES = Path(os.environ.get("ASA_SLURM_TREES") or Path.home() / ".cache" / "asa")
"""The folder of the trees, as `slurm/tree.sh` makes them."""


def tree_of(release):
    """Return the folder of a Debian with that Slurm; None for the host's own."""
    return None if release == OLDEST else TREES / f"slurm-{release}"


def missing(release=OLDEST):
    """Return why no cluster of that release can be started here; empty if one can."""
    if tree := tree_of(release):
        if not (tree / "usr/sbin/slurmrestd").exists():
            return f"no Slurm {release} in {tree}: make it with tests/slurm/tree.sh {release}"
        return "" if os.geteuid() == 0 else "a tree of its own needs root"
    needed = ("slurmctld", "slurmd", "slurmrestd", "munged", "sbatch", "mariadbd", "slurmdbd")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in needed if shutil.which(name, path=path) is None]
    return f"Slurm is not installed here ({', '.join(absent)})" if absent else ""


_TRUSTING = threading.Lock()  # trials begin side by side


def trust(folder):
    """Trust a folder as a user does in a file of theirs: the client may be root, and the jobs are another user's."""
    with _TRUSTING:
        if "ASA_TRUSTED" not in os.environ:
            os.environ["ASA_TRUSTED"] = made = f"{tempfile.gettempdir()}/asa-trusted-{secrets.token_hex(8)}"
            atexit.register(lambda: Path(made).unlink(missing_ok=True))
    listed = Path(os.environ["ASA_TRUSTED"])
    with open(listed, "a", opener=lambda name, how: os.open(name, how | os.O_NOFOLLOW, 0o600)) as file:
        file.write(f"{folder}\n")


def make_home(folder):
    """Make a home folder that nobody but its owner can change in a folder that jobs may write to; return its path."""
    home = folder / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    return str(home)


@dataclass
class Testbed:
    """A running cluster.

    `release` is one of `RELEASES`. `conf` is appended to slurm.conf. `containers`: of a tree, whether its jobs may make
    user namespaces. `binds`: of a tree, further folders of this computer that its jobs see.
    `cluster`: its name. `joins`: another cluster with accounting of the same release, whose accounting it is in.
    """

    __test__ = False

    root: Path
    release: str = OLDEST
    accounting: bool = False
    nodes: int = 4
    cores_per_node: int = 28
    accrue: bool = False
    containers: bool = False
    conf: str = ""
    binds: tuple = ()
    cluster: str = "testbed"
    joins: Path | None = None
    env: dict = field(default_factory=dict)

    def start(self):
        trust(self.root)
        for attempt in range(3):  # many databases that begin at once are more than some hosts bear
            try:
                self._script("start", timeout=180)
                break
            except (RuntimeError, subprocess.TimeoutExpired):
                self.stop()
                if attempt == 2:
                    raise
                time.sleep(5.0)
        told = self._script("env").stdout
        self.env = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        if self.accounting:  # the controller hears of the user a moment later
            until(lambda: f"UserName={self.user}(" in self._users(), what="the user's account")
        return self

    def _users(self):
        return self.run_as_root("scontrol", "show", "assoc_mgr", "flags=assoc", check=False)

    def mend(self):
        """Let every node take jobs again."""
        asked = ("sinfo", "-h", "-N", "-p", "normal", "-o", "%N %t")
        bad = [line.split()[0] for line in self.run_as_root(*asked).splitlines() if not line.endswith(_GOOD)]
        if bad:
            self.run_as_root("scontrol", "update", f"nodename={','.join(bad)}", "state=resume", check=False)
            until(lambda: all(line.endswith(_GOOD) for line in self.run_as_root(*asked).splitlines()), what="all nodes")

    def stop(self):
        """End every daemon and job, and delete everything."""
        if (self.root / "settings").exists():
            self._script("stop", "--purge", timeout=120, check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def tree(self):
        """Folder of the Debian that its daemons and jobs have in place of the host's; None if it is the host's."""
        return tree_of(self.release)

    @property
    def version(self):
        return self.env["TB_VERSION"]

    @property
    def socket(self):
        """Path of the REST daemon's unix socket, which takes requests of root and of the user, as the user."""
        return self.env["TB_REST_SOCKET"]

    @property
    def url(self):
        """Address of the REST daemon that wants tokens; None with 22.05."""
        return self.env.get("TB_REST_URL")

    @property
    def user(self):
        return self.env["TB_REST_USER"]

    def token(self, lifespan_s=3600):
        """Make a token of the user."""
        told = self.run_as_root("scontrol", "token", f"username={self.user}", f"lifespan={lifespan_s}")
        return told.strip().removeprefix("SLURM_JWT=")

    @property
    def prefix(self):
        """Command that runs another as the user of the cluster: `[*prefix, "squeue"]`."""
        return self.env["TB_AS_USER"].split()

    def run(self, *command, check=True, timeout=60):
        """Run a command as the user; return what it printed."""
        return self._run([*self.prefix, *command], check=check, timeout=timeout).stdout

    def run_as_root(self, *command, check=True, timeout=60):
        """Run a command as Slurm's administrator."""
        return self._run([*self.env["TB_AS_ROOT"].split(), *command], check=check, timeout=timeout).stdout

    def stop_controller(self):
        self._script("stop-ctld")

    def start_controller(self):
        self._script("start-ctld")

    def restart_controller(self):
        self._script("restart-ctld")

    def blind(self, node, folder=None, mode="755"):
        """Have a node not see a folder, as if it had not mounted a file system; without one, see all again.

        `mode`: of the empty folder in its place.
        """
        self._script("blind", node, *([str(folder), mode] if folder else []))

    def hasten(self, job_id):
        """Let a job or an element begin three seconds from now that was put back into the queue, not after two minutes.

        Not at once: its node refuses what begins in the second in which it was killed there ("already killed, do not
        launch"), and Slurm lets it have failed, with exit code 1.
        """
        told = self.run_as_root("env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "job", job_id, check=False)
        job = dict(word.split("=", 1) for word in told.split() if "=" in word)
        waits = job.get("JobState") == "PENDING" and job["EligibleTime"].isdecimal()
        if waits and int(job["EligibleTime"]) > time.time() + 10.0:  # once
            self.run_as_root("scontrol", "update", f"JobId={job_id}", "StartTime=now+3", check=False)

    def folder(self, name):
        """Make a folder that both the client (perhaps root) and the jobs (the user) may write to."""
        folder = self.root / "jobs" / name
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        return folder

    def empty(self):
        """Cancel everybody's jobs and wait until none is left."""
        for user in (self.user, "root"):
            self.run_as_root("scancel", "--quiet", "-u", user, check=False)
        until(lambda: not self.run_as_root("squeue", "-h", "-a").strip(), what="an empty queue")

    def _script(self, *arguments, **options):
        return self._run(["bash", str(SCRIPT), *arguments], **options)

    def _run(self, command, check=True, timeout=60):
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": os.environ.get("HOME", "/"),
            "TB_ROOT": str(self.root),
            "TB_NODES": str(self.nodes),
            "TB_CPUS": str(self.cores_per_node),
            "TB_DBD": "1" if self.accounting else "0",
            "TB_ACCRUE": "1" if self.accrue else "0",
            "TB_CONF": self.conf,
            "TB_BIND": " ".join([*self.binds, *([str(self.joins)] if self.joins else [])]),
            "TB_CLUSTER": self.cluster,
            "TB_JOIN": str(self.joins or ""),
            "TB_PIVOT": "1" if self.containers else "0",
            "TB_CHROOT": str(self.tree or ""),
        }
        done = subprocess.run(
            command,
            env=environment, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise RuntimeError(f"{shlex.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done


def until(true, *, within_s=120.0, what="what was waited for"):
    """Wait until something is true, and return it; look less often the longer it takes."""
    began_s = time.monotonic()
    while not (value := true()):
        waited_s = time.monotonic() - began_s
        if waited_s >= within_s:
            raise AssertionError(f"{what() if callable(what) else what} did not come within {within_s:g} s")
        time.sleep(min(max(0.05, waited_s / 10), 0.5))
    return value


def uid_of(user):
    return pwd.getpwnam(user).pw_uid

"""Nothing is sent to a wrong user at the other end of a port or a socket."""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest
from asa.backends.slurm.facility import SlurmRest
from asa.backends.slurm.rest import RestLink, TokenSource
from told_link import ToldLink

from asa.core.peers import UNKNOWN, stranger_at_port, stranger_at_socket
from asa.dmr.session import Session
from asa.errors import AsaError, InputError

TOKEN = "a-secret-token"
_LISTENER = """
import os, socket, sys
family, place, keeps = sys.argv[1:]
listening = socket.socket(getattr(socket, family))
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(place if family == "AF_UNIX" else (place, 0))
if family == "AF_UNIX":
    os.chmod(place, 0o777)
listening.listen()
print(listening.getsockname()[1], flush=True)
caller, _ = listening.accept()
if keeps:  # the call, and listens no more
    listening.close()
    print("kept", flush=True)
heard = b""
while b"\\r\\n\\r\\n" not in heard and not heard.endswith(b"\\n") and (piece := caller.recv(65536)):
    heard += piece
print(heard.decode(), flush=True)
"""


@contextmanager
def listening(account, family, place, keeps=""):
    """Have somebody listen; give his port, and what tells what he has heard of the first who called."""
    process = account.start(sys.executable, "-c", _LISTENER, family, place, keeps, cwd="/", stdout=-1)

    def heard(*, is_called=True):
        if not is_called:
            process.kill()
        return process.communicate(timeout=30)[0].strip()

    try:
        first = process.stdout.readline().strip()
        yield first, heard, process
    finally:
        process.kill()
        process.communicate()


def asked(url, **options):
    """Ask slurmrestd at an address, with a token, and give what that comes to."""
    link = RestLink(url, token=TokenSource(lambda: f"SLURM_JWT={TOKEN}", name="a test"), **{"timeout_s": 5} | options)
    try:
        link.about()
    except AsaError as error:
        return str(error)
    finally:
        link.close()
    return "answered"


@pytest.mark.parametrize(
    ("family", "place", "host"),
    [("AF_INET", "127.0.0.1", "127.0.0.1"), ("AF_INET", "0.0.0.0", "localhost"), ("AF_INET6", "::", "127.0.0.1"),
     ("AF_INET6", "::1", "[::1]")],
)  # fmt: skip
def test_a_token_does_not_go_to_another_user_s_port(accounts, family, place, host):
    """As where ssh could not take the port for a tunnel, warned, and went on."""
    with listening(accounts.stranger, family, place) as (port, heard, _):
        said = accounts.victim.call(asked, f"http://{host}:{port}")
        assert f"user {accounts.stranger.uid} answers there, and nothing was sent" in said
        assert "-L $HOME/slurm.sock:HOST:6820" in said
        assert heard() == ""


def test_a_token_goes_to_a_port_of_ones_own_of_root_s_and_of_the_account_that_is_named(accounts):
    """The last is slurmrestd's own, which it has on many sites."""
    victim, stranger = accounts.victim, accounts.stranger
    root = type("Root", (), {"start": staticmethod(lambda *words, **more: subprocess.Popen(words, text=True, **more))})
    for account, named in ((victim, []), (root, []), (stranger, [stranger.uid])):
        with listening(account, "AF_INET", "127.0.0.1") as (port, heard, _):
            url = f"http://127.0.0.1:{port}"
            victim.call(lambda url=url, named=named: asked(url, served_by=named))
            assert TOKEN in heard()


def test_who_listens_again_does_not_cover_who_has_answered(accounts):
    """A stranger takes the call and leaves the port to whom it was meant for: he holds the other end all the same."""

    def calls(port, process):
        with socket.create_connection(("127.0.0.1", port)) as calling:
            assert process.stdout.readline() == "kept\n"
            alone = stranger_at_port(calling)
            with socket.socket() as ours:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                ours.bind(("127.0.0.1", port))
                ours.listen()
                return alone, stranger_at_port(calling)

    with listening(accounts.stranger, "AF_INET", "127.0.0.1", "keeps") as (port, _, process):
        alone, covered = accounts.victim.call(calls, int(port), process)
    assert alone == UNKNOWN
    assert f"user {accounts.stranger.uid}" in covered


def test_a_token_does_not_go_to_another_user_s_socket(accounts):
    """In a place where anybody makes files, be it in a folder that he has made there."""
    stranger, everybody_s = accounts.stranger, accounts.group_folder("tmp", 0o1777)
    own = stranger.mkdir(everybody_s / "slurm")
    for path in (everybody_s / "s", own / "s"):
        with listening(stranger, "AF_UNIX", path) as (_, heard, _):
            said = accounts.victim.call(asked, f"unix://{path}")
            assert f"user {stranger.uid} answers there, and nothing was sent" in said
            assert heard() == ""


def test_a_daemon_s_socket_is_known_by_the_folder_that_root_made_for_it(accounts):
    """As /run/slurmrestd on a site, also by a link of root's; not if others can write to it, or have made the link."""
    daemon = accounts.stranger
    folder = accounts.place / "run" / "slurmrestd"
    folder.mkdir(parents=True)
    os.chown(folder, daemon.uid, -1)
    for name, owner in (("of-root", 0), ("of-others", accounts.stranger.uid)):
        (accounts.place / name).symlink_to(folder)
        os.lchown(accounts.place / name, owner, -1)
    for path, mode, is_meant in (
        (folder, 0o755, True),
        (folder, 0o775, False),
        (accounts.place / "of-root", 0o755, True),
        (accounts.place / "of-others", 0o755, False),
    ):
        folder.chmod(mode)
        with listening(daemon, "AF_UNIX", path / "s") as (_, heard, _):
            accounts.victim.call(asked, f"unix://{path / 's'}")
            assert (TOKEN in heard()) == is_meant
        (folder / "s").unlink()
    with listening(daemon, "AF_UNIX", folder / "s") as (_, heard, _):
        (folder / "s").rename(folder.parent / "s")
        accounts.victim.call(asked, f"unix://{folder.parent / 's'}")
        assert TOKEN in heard(), "that is in a folder of root's"


def test_a_run_does_not_begin_where_another_user_answers(accounts):
    """It is said at once, as a wrong address is."""

    def begins(url, folder):
        os.environ["SLURM_JWT"] = TOKEN
        SlurmRest(url=url).connect(folder)

    with listening(accounts.stranger, "AF_INET", "127.0.0.1") as (port, heard, _):
        with pytest.raises(InputError, match="nothing was sent"):
            accounts.victim.call(begins, f"http://127.0.0.1:{port}", accounts.victim.home)
        assert heard() == ""


def test_a_name_of_this_computer_that_leads_elsewhere_gets_no_token(monkeypatch):
    """Before, whatever `localhost` was resolved to was taken for this computer."""
    monkeypatch.setattr("asa.backends.slurm.rest.exchange.is_within", lambda _: False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert "in clear" in asked(f"http://localhost:{server.getsockname()[1]}")
        allowed = {"allow_insecure": True, "timeout_s": 0.2}
        assert "no answer within" in asked(f"http://localhost:{server.getsockname()[1]}", **allowed)


def test_where_nobody_says_who_answers_nothing_is_sent_unless_the_user_has_it_so(monkeypatch, tmp_path):
    """As without /proc, or where a port leads into another network namespace."""
    monkeypatch.setattr("asa.core.peers._TABLES", (tmp_path / "none",))
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert f"{UNKNOWN} answers there, and nothing was sent" in asked(url)
        assert "allow_insecure = true" in asked(url)
        assert "no answer within" in asked(url, allow_insecure=True, timeout_s=0.2)


def test_the_doctor_names_a_token_file_that_others_can_read(accounts):
    """Not one that lies where they cannot go."""

    def found(file):
        site = SlurmRest(url="https://slurm.invalid:6820", token_file=str(file))
        site._open_link = ToldLink
        return [(one.told, one.consequence) for one in site.examine(probe=False).findings if one.topic == "Secrecy"]

    victim, project = accounts.victim, accounts.group_folder()
    files = [victim.write(folder / "token", TOKEN, 0o644) for folder in (project, victim.home)]
    [(said, remedy)] = victim.call(found, files[0])
    assert said == f"the token in {files[0]} can be read or changed by other users"
    assert accounts.stranger.call(files[0].read_text) == TOKEN
    assert victim.sh(remedy.partition(": ")[2]).returncode == 0
    assert victim.call(found, files[0]) == victim.call(found, files[1]) == []
    assert accounts.stranger.call(found, accounts.stranger.write(project / "his", TOKEN)) != []
    assert victim.call(found, project / "his")[0][0].endswith(f"belongs to user {accounts.stranger.uid}")


# ---------------------------------------------------------------------- resource managers for programs that resize


def test_a_job_is_not_submitted_to_another_user_s_manager(accounts):
    """At the path in /tmp that can be foreseen: neither in his folder, nor at his socket in one of ours."""
    victim, stranger, everybody_s = accounts.victim, accounts.stranger, accounts.group_folder("tmp", 0o1777)
    his = stranger.mkdir(everybody_s / f"asa-dmr-{victim.uid}")
    with listening(stranger, "AF_UNIX", his / "socket") as (_, heard, _):
        there = {"TMPDIR": str(everybody_s)}
        done = victim.run(sys.executable, "-m", "asa", "dmr", "submit", "--", "true", env=there)
        assert done.returncode == 2
        assert f"belongs to user {stranger.uid}" in done.stderr
        assert heard(is_called=False) == ""
    ours = victim.mkdir(everybody_s / "ours", 0o777)
    with listening(stranger, "AF_UNIX", ours / "socket") as (_, heard, _):
        done = victim.asa("dmr", "submit", "--folder", ours, "--", "true")
        assert done.returncode == 2
        assert "can be changed by every user" in done.stderr
        victim.call(os.chmod, ours, 0o700)
        done = victim.asa("dmr", "submit", "--folder", ours, "--", "true")
        assert done.returncode == 2
        assert f"user {stranger.uid} answers there, and nothing was sent" in " ".join(done.stderr.split())
        assert heard() == ""


def test_a_manager_is_not_made_in_another_user_s_folder(accounts):
    """Nor in one that others can write to."""
    victim, everybody_s = accounts.victim, accounts.group_folder("tmp", 0o1777)
    his = accounts.stranger.mkdir(everybody_s / f"asa-dmr-{victim.uid}", 0o777)
    (everybody_s / "link").symlink_to(his)
    for folder in (his, everybody_s / "link", victim.mkdir(everybody_s / "open", 0o770)):
        done = victim.asa("dmr", "serve", "--nodes", 1, "--folder", folder)
        assert done.returncode == 2
        assert not list(folder.iterdir())


_MANAGER = """
import sys
from pathlib import Path
from asa.backends.dmr.desk import ManagerDesk
class Clerk:
    def reply(self, message): return {"said": message}
    def unheard(self, message): pass
desk = ManagerDesk(Path(sys.argv[1]), Clerk())
Path(sys.argv[1]).chmod(0o777)
print("open", flush=True)
sys.stdin.readline()
desk.close()
"""


def test_a_manager_answers_its_user_and_root_alone(accounts):
    """Whoever else reaches its socket is not heard: what is asked there runs as its user."""

    def says(path):
        with socket.socket(socket.AF_UNIX) as calling:
            calling.connect(str(path))
            calling.sendall(b'{"what": "submit"}\n')
            return calling.recv(100)

    path = accounts.group_folder("tmp", 0o1777) / "socket"
    manager = accounts.victim.start(sys.executable, "-c", _MANAGER, path, stdin=-1, stdout=-1)
    try:
        assert manager.stdout.readline() == "open\n"
        assert accounts.victim.call(says, path) == says(path) == b'{"said": {"what": "submit"}}\n'
        with suppress(ConnectionError):
            assert accounts.stranger.call(says, path) == b""
    finally:
        manager.communicate("\n", timeout=30)


def test_a_program_does_not_ask_another_user_s_manager(accounts):
    """Whose socket has taken the place of its own, which is gone."""

    def checks(path):
        session = Session(str(path), "1", 4)
        return session.check_status(1, 8).why

    path = accounts.group_folder("tmp", 0o1777) / "socket"
    with listening(accounts.stranger, "AF_UNIX", path) as (_, heard, _):
        accounts.victim.call(checks, path)
        assert heard() == ""


def test_who_listens_at_a_socket_is_asked_of_the_kernel(accounts):
    """Its file's owner says nothing: root gives a stranger's socket to the victim here."""
    path = accounts.group_folder("tmp", 0o1777) / "socket"
    with listening(accounts.stranger, "AF_UNIX", path), socket.socket(socket.AF_UNIX) as calling:
        os.chown(path, accounts.victim.uid, -1)
        calling.connect(str(path))
        assert f"user {accounts.stranger.uid}" in stranger_at_socket(calling)


_IN_ANOTHER_NETWORK = """
import ctypes, socket
from asa.core.peers import stranger_at_port
server = socket.create_server(("127.0.0.1", 0))
calling = socket.create_connection(server.getsockname())
print(stranger_at_port(calling) or "mine")
may = ctypes.CDLL(None).unshare(0x40000000) == 0
print(stranger_at_port(calling) if may else "may not")
"""


def test_a_port_of_another_network_namespace_is_of_nobody_known(accounts):
    """Its listeners are in none of this one's tables."""
    done = subprocess.run([sys.executable, "-c", _IN_ANOTHER_NETWORK], capture_output=True, text=True, check=True)
    here, there = done.stdout.splitlines()
    if there == "may not":
        pytest.skip("root may make no network namespaces here")
    assert (here, there) == ("mine", UNKNOWN)

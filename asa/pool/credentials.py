"""Authentication for a pool: its own certificate, kept in files that only its user can read."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from distributed.security import Security

from asa.errors import InputError, MissingExtraError

_DAYS = 365


def encrypting(security: Security | None) -> Security:
    """Return a pool's security: the given one, or a new certificate.

    Raises `InputError`: the given one does not encrypt: whoever reaches the pool could run code as its user.
    """
    if security is None:
        return make_security()
    if not security.require_encryption:
        raise InputError(
            "does not require encryption, so any user of this machine could run code in the pool",
            where="security",
            hint="Leave it out, and a certificate is made for the pool; or set require_encryption=True.",
        )
    return security


def make_security() -> Security:
    """Make a certificate with which scheduler, workers and clients authenticate each other and encrypt.

    The package ``cryptography`` makes it if installed, else the command ``openssl``.
    """
    try:
        return Security.temporary()
    except ImportError:
        certificate, key = _by_command()
    return Security(
        require_encryption=True,
        tls_ca_file=certificate,
        **{f"tls_{role}_cert": certificate for role in ("client", "scheduler", "worker")},
        **{f"tls_{role}_key": key for role in ("client", "scheduler", "worker")},
    )


def _by_command() -> tuple[str, str]:
    if (openssl := shutil.which("openssl")) is None:
        raise MissingExtraError(
            "a pool needs a certificate, and nothing here can make one",
            hint="pip install cryptography (it is in the extra `pool`), or install the command openssl.",
        )
    request = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(_DAYS), "-subj", "/CN=asa-pool"]
    # both go to where only we can read: no file is needed
    made = subprocess.run(  # noqa: S603 - the system's own
        [*request, "-keyout", "-", "-out", "-"], capture_output=True, text=True, check=True
    ).stdout
    key, _, certificate = made.partition("-----BEGIN CERTIFICATE-----")
    return "-----BEGIN CERTIFICATE-----" + certificate, key[key.index("-----BEGIN") :]


def credentials_folder(folder: Path) -> Path:
    """Return the folder of the credentials that a pool makes."""
    return folder / "tls"


def keep_credentials(security: Security, folder: Path) -> dict[str, Path]:
    """Store the workers' credentials in files that only the user can read."""
    folder = credentials_folder(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    paths = {}
    for option, content in (
        ("tls-ca-file", security.tls_ca_file),
        ("tls-cert", security.tls_worker_cert),
        ("tls-key", security.tls_worker_key),
    ):
        if not content:
            raise InputError(f"lacks what `dask worker` calls --{option}", where="security", hint="Give all of it.")
        if "\n" not in content:
            paths[option] = Path(content).absolute()
            continue
        paths[option] = folder / f"{option}.pem"
        paths[option].unlink(missing_ok=True)  # left by an earlier pool in this folder
        with open(paths[option], "w", encoding="ascii", opener=_private) as file:
            file.write(content)
    return paths


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)


def read_credentials(folder: Path) -> Security:
    """Return the security of a client of the pool in a folder, from its workers' credentials."""
    kept = credentials_folder(folder)
    authority, certificate, key = (str(kept / f"{option}.pem") for option in ("tls-ca-file", "tls-cert", "tls-key"))
    return Security(require_encryption=True, tls_ca_file=authority, tls_client_cert=certificate, tls_client_key=key)

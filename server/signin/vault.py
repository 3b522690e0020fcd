"""Where sign-ins are kept: one file for each server, and its secrets in the keyring of the system where one works.

The folder is open to its user alone (0700), and so is each file (0600). A file says what is no secret, and holds the
secrets themselves only where there is no keyring. Every proxy and command of the user shares the folder: a lock on one
file makes sure that a token is renewed by one process at a time, since an authorization server may take the second use
of a refresh token for a theft and end the sign-in.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from foretool.server.config.errors import Refusal
from foretool.server.config.keyrings import SERVICE, is_off, open_keyring
from foretool.server.config.servers import Server
from foretool.server.config.variables import home_folder
from foretool.server.signin.record import Challenge, SignIn

_FOLDER_VARIABLE: Final = "FORETOOL_SIGN_INS"
"""Names another folder, as a full path."""
_MOST_BYTES: Final = 256 * 1024

Kept = Literal["keyring", "file"]
Stamp = tuple[int, int, int]


class KnownSignIn(msgspec.Struct, frozen=True):
    """What may be shown about a sign-in."""

    server: str
    issuer: str = ""
    scope: str = ""
    expires_at: float = 0.0
    """Seconds of the system clock; 0 if the authorization server did not say."""
    is_renewed: bool = False
    """Whether foretool renews the token by itself."""
    signed_in_at: float = 0.0
    kept: Kept = "file"


class VaultError(Refusal):
    """A sign-in cannot be kept or read; the message holds no secret."""


class Vault:
    """Stores the sign-ins of one user: in files, with their secrets in the keyring where there is one."""

    def __init__(self, folder: Path, *, keyring: bool = True) -> None:
        self.folder = folder
        self._may_use_keyring = keyring

    @classmethod
    def own(cls, environ: Mapping[str, str] | None = None) -> Vault:
        """Return the vault of this user. It depends on the home folder alone: clients pass on a small environment."""
        environ = os.environ if environ is None else environ
        named = environ.get(_FOLDER_VARIABLE, "")
        folder = Path(named) if named.startswith("/") else Path(home_folder(environ), ".local/state/foretool/sign-ins")
        return cls(folder, keyring=not is_off(environ))

    def path(self, server: Server) -> Path:
        """Return the file of a server's sign-in. It depends on the server's name and address: another of either needs a
        sign-in of its own."""
        digest = hashlib.sha256(f"{server.name}\0{server.url}".encode()).hexdigest()[:20]
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", server.name)[:40]
        return self.folder / f"{name}-{digest}.json"

    def stamp(self, server: Server) -> Stamp | None:
        """Return a value that changes whenever the file of a server's sign-in does; None if there is none."""
        try:
            status = os.stat(self.path(server), follow_symlinks=False)  # noqa: PTH116 -- done before every request
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def note_wanted(self, server: Server, challenge: Challenge) -> None:
        """Save which scopes a server asks for in addition, for the next `foretool login`. Raises `VaultError`."""
        self._write(self.path(server).with_suffix(".wanted"), msgspec.json.encode(challenge))

    def wanted(self, server: Server) -> Challenge:
        """Return what a server asks for beyond what its sign-in allows."""
        data = self._read(self.path(server).with_suffix(".wanted"))
        try:
            return msgspec.json.decode(data, type=Challenge) if data else Challenge()
        except msgspec.MsgspecError:
            return Challenge()

    def load(self, server: Server) -> SignIn | None:
        """Return the sign-in of a server, None if there is none. May wait for the keyring. Raises `VaultError`."""
        path = self.path(server)
        data = self._read(path)
        if data is None:
            return None
        try:
            found: dict[str, Any] = msgspec.json.decode(data)
            kept = found.pop("kept", "file")
            if kept == "keyring":
                held = open_keyring().get_password(SERVICE, path.stem)
                found |= msgspec.json.decode(held) if held else {}
            return msgspec.convert(found, SignIn)
        except (msgspec.MsgspecError, ValueError, AttributeError) as error:
            raise VaultError(f"{path}: cannot be read ({type(error).__name__}); sign in again") from None
        except Exception as error:  # noqa: BLE001 -- each keyring has exceptions of its own
            raise VaultError(
                f"the keyring gives no token ({type(error).__name__}); unlock it, or sign in again"
            ) from None

    def describe(self, server: Server) -> KnownSignIn | None:
        """Return what may be shown of a server's sign-in, None if there is none. Asks no keyring."""
        try:
            data = self._read(self.path(server))
            return msgspec.json.decode(data, type=KnownSignIn) if data else None
        except (VaultError, msgspec.MsgspecError):
            return None

    def save(self, server: Server, record: SignIn) -> Kept:
        """Keep a sign-in. Returns where its secrets are. May wait for the keyring. Raises `VaultError`."""
        path = self.path(server)
        public, secret = record.split()
        kept: Kept = "keyring" if self._put(path.stem, msgspec.json.encode(secret).decode()) else "file"
        if kept == "file":
            public |= secret
        self._write(
            path, msgspec.json.format(msgspec.json.encode({**public, "kept": kept, "is_renewed": record.renews_itself}))
        )
        path.with_suffix(".wanted").unlink(missing_ok=True)
        return kept

    def remove(self, server: Server) -> bool:
        """Forget the sign-in of a server. Returns whether there was one. Raises `VaultError`."""
        path = self.path(server)
        data = self._read(path)
        if data is None:
            return False
        if b'"keyring"' in data and self._may_use_keyring:
            with contextlib.suppress(Exception):  # it may be gone already
                open_keyring().delete_password(SERVICE, path.stem)
        path.unlink(missing_ok=True)
        path.with_suffix(".wanted").unlink(missing_ok=True)
        return True

    @contextlib.contextmanager
    def locked(self, server: Server) -> Iterator[None]:
        """Keep other processes from renewing the same token in the block. Waits for them: call it in a thread."""
        self._make_folder()
        descriptor = os.open(self.path(server).with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _read(self, path: Path) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise VaultError(f"{path}: cannot be read ({error.strerror}); remove it and sign in again") from None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if status.st_uid != os.geteuid():
                raise VaultError(f"{path}: belongs to another user; remove it and sign in again")
            if stat.S_IMODE(status.st_mode) & 0o077:
                os.fchmod(descriptor, 0o600)
            return file.read(_MOST_BYTES)

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self._make_folder()
            new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(data)
            new.replace(path)
        except OSError as error:
            problem = f"{self.folder}: cannot keep the sign-in there ({error.strerror})"
            raise VaultError(f"{problem}; make the folder writable for yourself") from None

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.stat(self.folder)  # noqa: PTH116 -- as above
        if status.st_uid != os.geteuid():
            raise VaultError(f"{self.folder}: belongs to another user; name another folder in {_FOLDER_VARIABLE}")
        if stat.S_IMODE(status.st_mode) & 0o077:
            self.folder.chmod(0o700)

    def _put(self, name: str, secret: str) -> bool:
        """Give secrets to the keyring, and read them back. Returns False where none works."""
        if not self._may_use_keyring:
            return False
        try:
            ring = open_keyring()
            ring.set_password(SERVICE, name, secret)
            return bool(ring.get_password(SERVICE, name) == secret)
        except Exception:  # noqa: BLE001 -- each keyring has exceptions of its own; a file is kept instead
            return False

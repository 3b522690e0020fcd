"""Where a store is: a file, or a database on a server, whose password no text of ours shows."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

_SCHEMES: Final = ("postgresql://", "postgres://")
MEMORY: Final = ":memory:"
_SHOWN: Final = ("host", "hostaddr", "port", "dbname", "user", "options")
"""Values of the query that tell databases apart and are no secrets."""
_ESCAPED: Final = "in the user's name and the password write each of % @ : / ? # as %25 %40 %3A %2F %3F %23"


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone whatever the umask says. One that is
    there stays as it is. Raises `OSError`."""
    # `mkdir(mode=0o700, parents=True)` gives that mode to the last folder alone.
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is no folder", str(folder))


class ServerAddress(Struct, frozen=True, repr_omit_defaults=True):
    """A database on a server. Its text is the address without the password."""

    written: str
    """The address that the driver gets, with the password if it has one."""
    folder: Path | None = None
    """The folder for what stays on this machine; None for none."""

    @property
    def local(self) -> Path | None:
        """A path beside which the files stand that belong to the store on this machine; nothing is at this path."""
        return self.folder / "store" if self.folder is not None else None

    def __str__(self) -> str:
        parts = urlsplit(self.written)
        user, _, host = parts.netloc.rpartition("@")
        name = user.partition(":")[0]
        kept = [pair for pair in parts.query.split("&") if pair.partition("=")[0] in _SHOWN]
        query = f"?{'&'.join(kept)}" if kept else ""
        return f"{parts.scheme}://{f'{name}@' if name else ''}{host}{parts.path}{query}"

    def __repr__(self) -> str:
        return f"ServerAddress({str(self)!r})"


StorePlace = Path | ServerAddress
"""Where a store is that outlives the process."""


def is_address(written: object) -> bool:
    """Return whether a storage setting is the address of a server, not a file."""
    return isinstance(written, str) and written.startswith(_SCHEMES)


def read_place(written: str, state: Path | None = None) -> StorePlace:
    """Return the place that a checked storage setting means. `state`: the folder of foretool's own state."""
    if not is_address(written):
        return Path(written)
    if state is None:
        return ServerAddress(written)
    # By what is shown: a new password does not make it another database.
    import hashlib  # a file needs none

    name = hashlib.sha256(str(ServerAddress(written)).encode()).hexdigest()[:12]
    return ServerAddress(written, state / f"postgresql-{name}")


def local_file(place: StorePlace | str) -> Path | None:
    """Return the path beside which a store's files on this machine stand; None for a store in memory."""
    if isinstance(place, ServerAddress):
        return place.local
    return place if isinstance(place, Path) else None


def made_folder(place: StorePlace | str) -> Path | None:
    """Return the folder of files that foretool makes of installed packages, beside a store's files on this machine;
    None for a store in memory. It holds the ranks of tokens (2 MB), and encoders that older versions prepared."""
    file = local_file(place)
    return file.with_name("encoders") if file is not None else None


def local_folder(place: StorePlace) -> Path | None:
    """Return the folder of a store's files on this machine."""
    file = local_file(place)
    return file.parent if file is not None else None


def find_problem(written: str) -> str:
    """Return what is wrong with a storage setting, without anything in it that may be a secret; "" if nothing is."""
    scheme, mark, rest = written.partition("://")
    if not mark or "/" in scheme:
        return ""
    if not is_address(written):
        return "expected the path of a file or postgresql://user@host:port/database"
    before_query = rest.partition("?")[0]
    netloc, _, path = before_query.partition("/")
    if netloc.count("@") > 1 or netloc.rpartition("@")[0].count(":") > 1 or "@" in path or "#" in rest:
        return f"the address cannot be read: {_ESCAPED}"
    if re.search(r"%(?![0-9A-Fa-f]{2})", rest):
        return f"the address has a % that begins no escape: {_ESCAPED}"
    if any(character.isspace() or not character.isprintable() for character in unquote(before_query)):
        return "the address has a space or an invisible character"
    if any(not port.isdecimal() for port in re.findall(r":([^,\]@/]+)(?=,|$)", netloc.rpartition("@")[2])):
        return f"the address has a port that is no number; {_ESCAPED}"
    return ""


def find_passwords(written: str) -> Iterator[str]:
    """Yield each form of a password that stands in an address."""
    if not is_address(written):
        return
    parts = urlsplit(written)
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    values = [value for key, value in parse_qsl(parts.query) if key in ("password", "sslpassword")]
    yield from dict.fromkeys(each for each in (password, unquote(password), *values) if each)

"""The config file: which one is read, how files are read that somebody else may have put in place, and who else could
change or read one.

A config starts programs, and the working folder may be a cloned repository. So its `mcp.json` is read only if the user
names it (`--config`, `FORETOOL_CONFIG`), or if their own file says `"project_config": true`.

A read never waits for a pipe or a device, and never goes on without end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, TypeVar

from msgspec import Struct

from foretool.server.config.codes import Code
from foretool.server.config.errors import ConfigError, printable_line
from foretool.server.config.variables import expand_tilde, home_folder

NamedBy = Literal["--config", "FORETOOL_CONFIG", "your own file", "project_config"]

_PROJECT_FILE = Path("mcp.json")


class ConfigPlace(Struct, frozen=True):
    """A config file, and what names it."""

    path: Path
    """Always a full path, because foretool and its children work in different folders."""
    named_by: NamedBy
    ignored: Path | None = None
    """`mcp.json` of the working folder, if it exists and nothing names a config; it is not read."""

    @property
    def notice(self) -> str:
        """One line about the file of the working folder that is not read, or ""."""
        if self.ignored is None:
            return ""
        shown, own = printable_line(str(self.ignored)), printable_line(str(self.path))
        way_out = 'name it with --config to use it, or set "project_config": true in your own file'
        return f"{shown} is not read (foretool uses {own}); {way_out}"


def own_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's own file, whether or not it exists."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # A relative folder would be one of the working folder; the XDG specification says to ignore it.
    return Path(base if base.startswith("/") else f"{home_folder(environ)}/.config") / "foretool" / "mcp.json"


def find_place(given: Path | None, environ: Mapping[str, str]) -> ConfigPlace:
    """Return the config file. `given` is that of `--config`. Raises `ConfigError` for a relative `FORETOOL_CONFIG`."""
    home = home_folder(environ)
    if given is not None:
        try:
            return ConfigPlace(absolute(Path(expand_tilde(str(given), home))), "--config")
        except OSError:
            problem = "the folder that it starts in is gone; write the full path"
            raise ConfigError(f"--config: {printable_line(str(given))!r}: {problem}", Code.OPTION_WRONG) from None
    if named := environ.get("FORETOOL_CONFIG"):
        path = Path(expand_tilde(named, home))
        if not path.is_absolute():
            found = f"FORETOOL_CONFIG: expected a full path, found {printable_line(named)!r}"
            problem = f"{found}, which is another file in every folder; write the full path"
            raise ConfigError(problem, Code.OPTION_WRONG)
        return ConfigPlace(absolute(path), "FORETOOL_CONFIG")
    own = own_file(environ)
    return ConfigPlace(own, "your own file", find_project_file(own))


def is_own_file(path: Path, environ: Mapping[str, str]) -> bool:
    """Return whether a path leads to the user's own file."""
    return os.path.realpath(path) == os.path.realpath(own_file(environ))


def find_project_file(used: Path) -> Path | None:
    """Return `mcp.json` of the working folder; None if there is none, or if it is the file that is used."""
    try:
        found = _PROJECT_FILE.is_file() and not (used.exists() and _PROJECT_FILE.samefile(used))
        return absolute(_PROJECT_FILE) if found else None
    except OSError:  # the working folder is gone, or may not be entered
        return None


def absolute(path: Path) -> Path:
    """Return the full path, without following links."""
    return Path(os.path.abspath(path))  # noqa: PTH100 -- resolve() would follow links


def find_other_writers(path: Path) -> str:
    """Say who else could change this file or replace it through a folder above it; "" if nobody but root could."""
    return next(_problems(path), "")


def is_readable_by_others(path: Path) -> bool:
    """Return whether the file's mode lets its group or every user read it."""
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def is_own_and_writable_by_others(path: Path) -> bool:
    """Return whether the file belongs to this user, and its mode lets its group or every user write it."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


_REPOSITORIES = (".git", ".hg", ".jj", ".svn")


def is_users_word(path: Path) -> bool:
    """Return whether only the user could have written a file: nobody else may write it, and it is in no repository,
    where a pull would change it. A repository of the whole home folder is the user's own."""
    real = Path(os.path.realpath(path))
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 -- quicker
    folders = (each for each in real.parents if str(each) != home)
    if any((folder / name).exists() for folder in folders for name in _REPOSITORIES):
        return False
    return not find_other_writers(path)


def _problems(path: Path) -> Iterator[str]:
    real = Path(os.path.realpath(path))
    yield from _problems_of(path, with_group=True)
    yield from _problems_of(real, with_group=True)
    yield from _problems_of(path.parent, with_group=True)
    for folder in dict.fromkeys((*path.parents, *real.parents)):
        yield from _problems_of(folder, with_group=False)


def _problems_of(path: Path, *, with_group: bool) -> Iterator[str]:
    """Say what is wrong with one file or folder. `with_group`: its group counts as others, unless it is our own."""
    try:
        status = path.stat()
    except OSError:
        return
    if status.st_uid not in (0, os.geteuid()):
        yield f"{path} belongs to {_user(status.st_uid)}"
    # In a sticky folder like /tmp only the owner of a file may replace it.
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return
    if status.st_mode & stat.S_IWOTH:
        yield f"every user of this machine may write {path}"
    elif with_group and status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid()):
        yield f"the group of {path} may write it"


def _user(number: int) -> str:
    import pwd  # only a finding needs it

    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user {number}"


_MIB: Final = 1 << 20
_LARGEST_CONFIG: Final = 32 * _MIB
"""Most bytes of a config file, of a client or of ours: Claude Code keeps megabytes of history in its own."""


def read_regular(path: Path, largest: int = _LARGEST_CONFIG) -> bytes:
    """Return what a regular file holds. Raises `OSError` whose `strerror` says what stands there instead, or that it
    has more than `largest` bytes."""
    # Opening a pipe would otherwise wait for whoever writes into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if status.st_size > largest:
            raise OSError(errno.EFBIG, f"it is larger than {largest // _MIB} MiB", str(path))
        return file.read()


_LARGEST_LINES: Final = 256 * _MIB
"""Most bytes of a file of lines that a command reads."""


Row = TypeVar("Row")


def read_rows(path: Path, decode: Callable[[bytes], Row], expected: str) -> Iterator[tuple[str, Row]]:
    """Yield the object of each line of a file or a pipe that a user names, behind its place. Raises `ValueError` with
    the way out where the file cannot be read or does not end, or where a line is not as `expected`."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_LINES + 1)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; give a file with an object of JSON a line") from None
    if len(data) > _LARGEST_LINES:
        raise ValueError(f"{path}: it is larger than {_LARGEST_LINES // _MIB} MiB; give a part of it")
    # Not splitlines(): texts that people wrote may hold other line separators.
    lines = enumerate(data.split(b"\n"), 1)
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = decode(line)
        except (ValueError, RecursionError) as error:  # every error of a decoder is a ValueError
            raise ValueError(f"{path}: line {number}: {error}; {expected}") from None
        yield f"{path}: line {number}", row

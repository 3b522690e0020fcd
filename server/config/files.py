"""Reads files that somebody else may have put in place: never a pipe or a device, and never without end.

Tells which files others could change or read: another user of this machine, or whoever writes a repository.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final


def find_other_writers(path: Path) -> str:
    """Say who else could change this file or replace it through a folder above it; "" if nobody but root could."""
    for problem in _problems(path):
        return problem
    return ""


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
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if status.st_size > largest:
            raise OSError(errno.EFBIG, f"it is larger than {largest // _MIB} MiB", str(path))
        return file.read()


_LARGEST_LINES: Final = 256 * _MIB
"""Most bytes of a file of lines that a command reads."""


def read_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each line of a file or a pipe that a user names, without blank ones, behind its place. Raises `ValueError`
    with the way out where it cannot be read or does not end."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_LINES + 1)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; give a file with an object of JSON a line") from None
    if len(data) > _LARGEST_LINES:
        raise ValueError(f"{path}: it is larger than {_LARGEST_LINES // _MIB} MiB; give a part of it")
    # Not splitlines(): texts that people wrote may hold other line separators.
    lines = enumerate(data.split(b"\n"), 1)
    yield from ((f"{path}: line {number}", line) for number, line in lines if line.strip())

"""The user's own instruction files, read when they change and cut into fragments."""

from __future__ import annotations

import glob
import logging
import stat
import time
from pathlib import Path
from typing import Final

from msgspec import Struct

from foretool.retrieval.fragments import PRIORITIES, Fragment, Priority, fragments, front_matter
from foretool.server.config.loader import LiveConfig

LOOK_S: Final = 1.0
"""Files are checked at most this often."""
_MOST_FILES: Final = 200
_MOST_BYTES: Final = 1024 * 1024
"""A larger file is not read."""

log = logging.getLogger("foretool.instructions")


class _File(Struct, frozen=True):
    stamp: tuple[int, int]
    """The time of the last change in nanoseconds, and the size in bytes."""
    fragments: tuple[Fragment, ...]


class InstructionFiles:
    """Follows the files that the setting `instructions` names."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self._files: dict[Path, _File] = {}
        self._looked_at = -LOOK_S
        self._said: set[str] = set()
        """Problems that were logged already."""
        self.version = 0
        """Grows with every change of a file."""

    def fragments(self) -> list[Fragment]:
        return [fragment for file in self._files.values() for fragment in file.fragments]

    def look(self) -> None:
        """Read the files that are new or have changed; at most every `LOOK_S`."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        problems: list[str] = []
        found = {path: self._read(path, problems) for path in self._paths(problems)}
        files = {path: file for path, file in found.items() if file is not None}
        if files != self._files:
            self._files = files
            self.version += 1
        for problem in problems:
            if problem not in self._said:
                log.warning("%s", problem)
        self._said = set(problems)

    def _paths(self, problems: list[str]) -> list[Path]:
        folder = self._config.now.path.absolute().parent
        found: dict[Path, None] = {}
        for pattern in self._config.settings.instructions:
            wanted = str(Path(pattern).expanduser())
            matched = glob.glob(wanted, root_dir=folder, recursive=True)  # noqa: PTH207 -- Path.glob refuses absolute ones
            paths = sorted(folder / each for each in matched)
            files = [path for path in paths if not path.is_dir()]
            if not files:
                problems.append(
                    f"foretool.instructions: {pattern!r} matches no file under {folder}; correct the pattern"
                )
            found |= dict.fromkeys(files)
        if len(found) > _MOST_FILES:
            problems.append(
                f"foretool.instructions: {len(found)} files, only the first {_MOST_FILES} are read; name fewer"
            )
        return list(found)[:_MOST_FILES]

    def _read(self, path: Path, problems: list[str]) -> _File | None:
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._files.get(path)
            if known is not None and known.stamp == stamp:
                return known
            if not stat.S_ISREG(status.st_mode):
                problems.append(f"instructions: {path} is not a text file; leave it out of the patterns")
                return None
            if status.st_size > _MOST_BYTES:
                problems.append(
                    f"instructions: {path} has {status.st_size} bytes, {_MOST_BYTES} is the most; cut it into files"
                )
                return None
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            problems.append(f"instructions: {path}: expected UTF-8, found another byte at {error.start}; convert it")
            return None
        except OSError as error:
            problems.append(f"instructions: {path} cannot be read ({error.strerror}); check its permissions")
            return None
        return _File(stamp, tuple(self._chunks(path, text, problems)))

    def _chunks(self, path: Path, text: str, problems: list[str]) -> list[Fragment]:
        about, body = front_matter(text)
        said = about.get("priority", "guidance")
        priority: Priority = next((each for each in PRIORITIES if each == said), "guidance")
        if priority != said:
            problems.append(
                f"instructions: {path}: priority: expected one of {', '.join(PRIORITIES)}, found {said!r};"
                " it is read as guidance"
            )
        folder = self._config.now.path.absolute().parent
        name = path.relative_to(folder) if path.is_relative_to(folder) else path
        return fragments(body, f"file {name}", priority)

"""The user's own skills: folders with a `SKILL.md`, as clients keep them, and those of projects that the user allows.

A client that reads one of these folders by itself does not get its skills from us. Files are looked at when somebody
lists or searches skills, at most once a second. Nothing outside the folder of a skill is read: a link that leads out of
it is passed over, and what is read has to be on the list of the skill's files.
"""

from __future__ import annotations

import glob
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from msgspec import Struct, field

from foretool.server.config.files import find_other_writers, read_regular
from foretool.server.config.loader import LiveConfig
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.skills import MAIN, MOST_BYTES, MOST_FILES, Mark, check_front_matter, mark_of

OWN: Final = "skill://~/"
"""Begins the URIs of the user's own skills. No server has such a prefix."""
_LOOK_S: Final = 1.0
"""Folders are looked at at most this often."""
_MOST_SKILLS: Final = 1000
"""So many skills of one folder are read."""
_MOST_MAIN: Final = 256 * 1024
"""Bytes. A longer `SKILL.md` is not read: it would fill the context of any model."""
_READERS: Final = {
    ".claude": "claude-code", ".codex": "codex", ".copilot": "copilot", ".cursor": "cursor", ".gemini": "gemini",
    "opencode": "opencode", ".opencode": "opencode", ".github": "copilot",
}  # fmt: skip
"""By the folder that holds `skills`: what stands in the name of the client that reads it by itself."""
_OF_PROJECT: Final = (".claude", ".agents", ".codex", ".github", ".cursor", ".gemini", ".opencode")
"""Where a project keeps skills, each in `skills` below it."""
_PROJECT: Final = "project"
_MOST_LABEL: Final = 24
"""Characters: names of at most 256 can be asked for."""
_NO_TEXTS: Final = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})
"""Words that a YAML reader may take for something else."""

log = logging.getLogger("foretool.skills")


class Reader(Protocol):
    """What about a client decides which skills it needs from us."""

    info: dict[str, Any]
    transport: str
    folder: str
    principal: str


class OwnSkill(Struct, frozen=True):
    uri: str
    name: str
    description: str
    folder: Path
    """Its real folder."""
    reader: str
    """What stands in the name of the client that reads it by itself."""
    digest: str
    """Of its `SKILL.md`."""


class _Source(Struct, frozen=True):
    path: Path
    label: str
    """Stands in the URIs of its skills."""
    within: Path | None = None
    """The project that its skills may not lead out of."""


class _Looked(Struct):
    """What a folder held when it was looked at last."""

    at: float = -_LOOK_S
    skills: dict[str, tuple[tuple[int, int], OwnSkill | None]] = field(default_factory=dict)
    """By path of a `SKILL.md`: its time and size, and the skill, None for one that cannot be used."""


class SkillFolders:
    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self._looked: dict[_Source, _Looked] = {}
        self._said: set[str] = set()
        """Problems that were logged already."""
        self.version = 0
        """Grows with every change of a skill."""

    def are_there(self, client: Reader) -> bool:
        """Return whether there is a folder of skills for a client; reads nothing."""
        return any(source.path.is_dir() for source in self._sources(client))

    def of(self, client: Reader) -> list[OwnSkill]:
        """Return the user's skills that a client does not read by itself, the same text once."""
        name = str(client.info.get("name", "")).lower().replace(" ", "-")
        seen: set[str] = set()
        found: list[OwnSkill] = []
        skills = [skill for source in self._sources(client) for skill in self._look(source)]
        # What it reads by itself counts as seen, wherever else the same text stands.
        skills.sort(key=lambda skill: not (skill.reader and skill.reader in name))
        for skill in skills:
            if skill.digest not in seen and not (skill.reader and skill.reader in name):
                found.append(skill)
            seen.add(skill.digest)
        return found

    def entry(self, skill: OwnSkill) -> Raw | None:
        """Return a skill's entry for `skills/list`, None for one that cannot be listed; the log says why."""
        try:
            files = self._marks(skill)
            about = read_front_matter(_read_main(skill.folder / MAIN))
            check_front_matter(about)
        except (OSError, ValueError) as error:
            self._say(f"skill {skill.folder}: {error}; only a search shows it")
            return None
        resources = [{"uri": uri, "digest": mark.digest, "size": mark.size} for uri, mark in files.items()]
        return jsonrpc.raw({"uri": skill.uri, "frontmatter": about, "resources": resources})

    def files(self, skill: OwnSkill) -> dict[str, Path]:
        """Return the files of a skill by URI, `SKILL.md` first. Raises ValueError for more than a skill may have."""
        root = skill.uri.removesuffix(MAIN)
        found = {f"{root}{quote(path.relative_to(skill.folder).as_posix())}": path for path in _walk(skill.folder)}
        if len(found) > MOST_FILES:
            raise ValueError(f"it has more than {MOST_FILES} files")
        return dict(sorted(found.items(), key=lambda each: (each[0] != skill.uri, each[0])))

    def _marks(self, skill: OwnSkill) -> dict[str, Mark]:
        files = {uri: mark_of(read_file(skill, path)) for uri, path in self.files(skill).items()}
        if sum(mark.size for mark in files.values()) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        return files

    # -- folders

    def _sources(self, client: Reader) -> Iterator[_Source]:
        """Yield the folders of skills for a client: none for a person who signs in at an authorization server."""
        settings = self._config.settings
        if client.principal and settings.access is not None:
            return
        base = self._config.now.path.absolute().parent
        labels: set[str] = set()
        for written in settings.skills:
            path = base / Path(written).expanduser()
            yield _Source(path, _label(path, labels))
        if (project := self._project(client, base)) is not None:
            for name in _OF_PROJECT:
                path = project / name / "skills"
                yield _Source(path, f"{_PROJECT}/{name.strip('.')}", project)

    def _project(self, client: Reader, base: Path) -> Path | None:
        """Return the innermost project that the user allows and that a client works in."""
        patterns = self._config.settings.skill_projects
        if not patterns or client.transport == "http":
            return None
        works_in = os.path.realpath(client.folder or Path.cwd())
        allowed = (found for each in patterns for found in glob.glob(str(base / Path(each).expanduser())))  # noqa: PTH207 -- Path.glob refuses absolute ones
        roots = {os.path.realpath(each) for each in allowed}
        inside = [each for each in roots if os.path.commonpath((each, works_in)) == each]
        return Path(max(inside, key=len)) if inside else None

    def _look(self, source: _Source) -> list[OwnSkill]:
        looked = self._looked.setdefault(source, _Looked())
        if time.monotonic() - looked.at >= _LOOK_S:
            before, looked.skills = looked.skills, {}
            for path in self._mains(source):
                try:
                    status = path.stat()
                    stamp = (status.st_mtime_ns, status.st_size)
                    known = before.get(str(path))
                    looked.skills[str(path)] = known if known and known[0] == stamp else (stamp, _read(path, source))
                except (OSError, ValueError) as error:
                    looked.skills[str(path)] = ((0, 0), None)
                    self._say(f"skill {path.parent}: {error}; it is not served")
            self.version += looked.skills != before
            looked.at = time.monotonic()
        return [skill for _, skill in looked.skills.values() if skill is not None]

    def _mains(self, source: _Source) -> list[Path]:
        """Return the `SKILL.md` of each skill in a folder, at most `_MOST_SKILLS`."""
        try:
            names = sorted(each.name for each in os.scandir(source.path) if not each.name.startswith("."))
        except OSError:
            return []
        if (problem := find_other_writers(source.path)) and names:
            self._say(f"skills of {source.path} are not served: {problem}")
            return []
        found = [path for name in names if (path := source.path / name / MAIN).exists()]
        if len(found) > _MOST_SKILLS:
            self._say(f"{source.path} has {len(found)} skills; only the first {_MOST_SKILLS} are served")
        return found[:_MOST_SKILLS]

    def _say(self, problem: str) -> None:
        if problem not in self._said:
            self._said.add(problem)
            log.warning("%s", problem)


def _label(path: Path, taken: set[str]) -> str:
    """Return what stands for a folder in URIs: the last of its names that is not `skills`."""
    names = [name for name in path.parts if name.strip("./") and name not in ("skill", "skills")]
    said = (names or ["skills"])[-1].strip(".")[:_MOST_LABEL]
    label = "".join(each if each.isalnum() and each.isascii() else "-" for each in said)
    number = next(at for at in range(1, len(taken) + 2) if (f"{label}-{at}" if at > 1 else label) not in taken)
    taken.add(found := f"{label}-{number}" if number > 1 else label)
    return found


def _read(main: Path, source: _Source) -> OwnSkill:
    """Read a skill as far as a search needs it. Raises `OSError` or ValueError."""
    folder = Path(os.path.realpath(main.parent))
    if source.within is not None and not folder.is_relative_to(source.within):
        raise ValueError(f"it leads out of {source.within}")
    if not Path(os.path.realpath(main)).is_relative_to(folder):
        raise ValueError(f"its {MAIN} leads out of it")
    if problem := find_other_writers(main):
        raise ValueError(problem)
    text = _read_main(main)
    about = read_front_matter(text)
    check_front_matter({key: about.get(key) for key in ("name", "description")})
    reader = _READERS.get(source.path.parent.name, "")
    uri = f"{OWN}{source.label}/{about['name']}/{MAIN}"
    return OwnSkill(uri, about["name"], about["description"].strip(), folder, reader, mark_of(text.encode()).digest)


def _read_main(path: Path) -> str:
    try:
        return read_regular(path, _MOST_MAIN).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{MAIN} is not UTF-8 at byte {error.start}") from None


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files of a skill, hidden ones and what leads out of its folder left out; a few more than it may have at
    most."""
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            path = Path(place) / name
            if name.startswith(".") or not Path(os.path.realpath(path)).is_relative_to(folder) or not path.is_file():
                continue
            yield path
            if (count := count + 1) > MOST_FILES:
                return


def read_file(skill: OwnSkill, path: Path) -> bytes:
    """Return the bytes of a file of a skill. Raises `OSError`, also for one that leads out of it by now or that others
    may write."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(skill.folder):
        raise OSError(f"{path} leads out of its skill")
    if problem := find_other_writers(real):
        raise OSError(problem)
    return read_regular(real, MOST_BYTES)


# Front matter


def read_front_matter(text: str) -> dict[str, Any]:
    """Return the YAML at the beginning of a `SKILL.md` as plain values. Raises ValueError."""
    lines = text.replace("\r\n", "\n").split("\n")
    end = next((at for at, line in enumerate(lines) if at and line.rstrip() == "---"), 0)
    if lines[0].rstrip() != "---" or not end:
        raise ValueError(f"{MAIN} does not begin with front matter between two lines ---")
    head = lines[1:end]
    simple = [_simple(line) for line in head if line.strip()]
    if all(simple):
        return dict(each for each in simple if each)
    if (found := _read_yaml("\n".join(head))) is not None:
        return found
    # Many skills have a colon in their description, which clients take though YAML does not.
    pairs = [line.partition(": ") for line in head if line.strip()]
    if not all(colon and key.strip() == key for key, colon, _ in pairs):
        raise ValueError("front matter is not YAML")
    return {key: value.strip().strip("'\"") for key, _, value in pairs}


def _simple(line: str) -> tuple[str, str] | None:
    """Return key and value of a line that every YAML reader takes for a text, None for any other line. Most front
    matter has no others, and a YAML parser takes a tenth of a second to import."""
    key, colon, value = line.partition(": ")
    value = value.strip()
    plain = colon and key.replace("-", "").replace("_", "").isalpha() and value[:1].isalpha()
    if not plain or ": " in value or " #" in value or value.endswith(":") or value.lower() in _NO_TEXTS:
        return None
    return key, value


def _read_yaml(text: str) -> dict[str, Any] | None:
    """Return what YAML says, None where it is none. Raises ValueError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.tokens import AliasToken

    try:
        if "*" in text and any(isinstance(each, AliasToken) for each in YAML(pure=True).scan(text)):
            raise ValueError("front matter must not repeat parts by reference")
        found = YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return None
    try:
        plain = jsonrpc.plain_object(jsonrpc.raw(found))
    except (TypeError, RecursionError):
        plain = None
    if plain is None:
        raise ValueError("front matter is no mapping of plain values")
    return plain

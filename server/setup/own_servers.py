"""Edits of our own config file: servers come and go, are switched on and off, and tools are pinned.

Each edit changes the text where it has to and keeps everything else, comments and order too. Nothing is written here;
`changes` does that.

A `ConfigChange` is a change of the config in the text of the user's own file. It is made in memory first, and that text
is read as any config is. So a change means the same in a replay as in the file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config import jsonc
from foretool.server.config.files import read_regular
from foretool.server.config.loader import Config, find_server_key, parse
from foretool.server.setup import changes
from foretool.server.setup.changes import FileChange
from foretool.server.setup.dialects import Entry
from foretool.server.setup.documents import DocumentError, JsonDocument, Keys, value_at

_PINS: Final[Keys] = ("foretool", "pin")


class OwnServers:
    """The text of our file while it is edited."""

    def __init__(self, path: Path, data: bytes | None) -> None:
        """`data` is None if there is no such file. Raises `DocumentError` for what is not JSON in UTF-8."""
        self.path = path
        self.before = data
        try:
            self._document = JsonDocument((data or b"").decode())
        except UnicodeDecodeError:
            raise DocumentError("expected UTF-8, found other bytes; save it as UTF-8") from None
        found = self._document.data()
        if not isinstance(found, Mapping):
            raise DocumentError('expected an object; write {"mcpServers": {}}')
        self.key = find_server_key(found)
        if not isinstance(found.get(self.key, {}), Mapping):
            raise DocumentError(f"{self.key}: expected an object of servers by name")
        if self.key not in found:
            self._document.set((self.key,), {})

    def servers(self) -> dict[str, Any]:
        """Return the entries as written, in the order of the file."""
        return dict(value_at(self._document.data(), (self.key,)) or {})

    def set_server(self, name: str, entry: Entry) -> None:
        """Add a server, or write a new entry in place of its old one."""
        self._document.set((self.key, name), entry)

    def remove_server(self, name: str) -> None:
        """Remove a server. Nothing happens if it is not there."""
        self._document.remove((self.key, name))

    def switch(self, name: str, *, on: bool) -> None:
        """Switch a server on or off. Raises `DocumentError` if its entry is not an object."""
        keys = (self.key, name, "disabled")
        if not on:
            self._document.set(keys, True)
        elif value_at(self._document.data(), keys) is True:
            self._document.remove(keys)

    def set_command(self, name: str, command: str) -> None:
        """Start a server by another program. Raises `DocumentError` if its entry is not an object."""
        self._document.set((self.key, name, "command"), command)

    def inherit(self, name: str, variable: str) -> None:
        """Pass a variable on to a server. Raises `DocumentError` if its entry holds no list there."""
        self._document.add_item((self.key, name, "inherit"), variable)

    def pins(self) -> dict[str, list[str]]:
        """Return the patterns of pinned tools: under "" those of exposed names, under a server's name its own."""
        data = self._document.data()
        places: dict[str, Keys] = {"": _PINS, **{name: (self.key, name, "pin") for name in self.servers()}}
        found = {name: value_at(data, keys) for name, keys in places.items()}
        return {name: [str(each) for each in pins] for name, pins in found.items() if isinstance(pins, list) and pins}

    def pin(self, pattern: str) -> None:
        """Pin what fits a pattern of exposed names. Raises `DocumentError` if the file holds no list there."""
        self._document.add_item(_PINS, pattern)

    def unpin(self, pattern: str, server: str = "") -> None:
        """Remove a pattern from our pins, or from those of a server, and the list that this leaves empty."""
        keys = (self.key, server, "pin") if server else _PINS
        self._document.remove_item(keys, pattern)
        if self.value(keys) == []:
            self._document.remove(keys)
        if self.value(_PINS[:1]) == {}:
            self._document.remove(_PINS[:1])

    def set_value(self, keys: jsonc.Path, value: object) -> None:
        """Set any value of the file, also an item of a list. Raises `DocumentError` if something on the way is no
        object."""
        self._document.set(keys, value)

    def add_item(self, keys: Keys, item: str) -> None:
        """Append a text to the list at this path of the file. Raises `DocumentError` if there is something else."""
        self._document.add_item(keys, item)

    def value(self, keys: Keys) -> Any:
        """Return any value of the file; None if there is none."""
        return value_at(self._document.data(), keys)

    def text(self) -> str:
        return self._document.text()

    def change(self, why: str) -> FileChange | None:
        """Return what is to be written, None if that is what the file holds."""
        after = self.text().encode()
        return None if after == self.before else FileChange(self.path, self.before, after, why)


COPIES: Final = 50
"""How many earlier versions of the file are kept."""


def copies_of(place: Path) -> Path:
    """Return the folder of the earlier versions of a config file; those of `init` lie beside it."""
    return place.parent / changes.FOLDER / "edits" / place.name


def save_edit(own: OwnServers, why: str, command: str) -> Path | None:
    """Write an edited file after a copy of it, and that this command did so; return the folder of the copy, None if
    nothing has to change. Raises `ChangeError`."""
    change = own.change(why)
    if change is None:
        return None
    folder = copies_of(own.path)
    kept = changes.write_changes([change], folder, what=command)
    for old in sorted(folder.iterdir())[:-COPIES]:
        shutil.rmtree(old, ignore_errors=True)
    return kept


def latest_command(place: Path) -> str:
    """Return the command that made the latest edit, "" if that is not on record. Raises `ChangeError`."""
    runs = changes.latest_runs(copies_of(place))
    return runs[0].what if runs else ""


def changed_names(place: Path) -> set[str]:
    """Return which servers and pins the latest edit changed, by name; empty if there is no edit. Raises
    `ChangeError`."""
    runs = changes.latest_runs(copies_of(place))
    try:
        texts = runs[0].versions(place) if runs else None
        old, new = (OwnServers(place, each) for each in texts or (None, None))
    except (OSError, DocumentError):
        return set()
    names = {name for name in {**old.servers(), **new.servers()} if old.servers().get(name) != new.servers().get(name)}
    pins = [{each for pinned in own.pins().values() for each in pinned} for own in (old, new)]
    return names | (pins[0] ^ pins[1])


def last_good(place: Path) -> tuple[str, bytes] | None:
    """Return the newest copy of a config file that can be read, and when it was made; None without one."""
    for moment, text in changes.kept_texts(place, (copies_of(place), place.parent / changes.FOLDER)):
        with suppress(DocumentError):
            OwnServers(place, text)
            return moment, text
    return None


def is_damaged(place: Path) -> bool:
    """Return whether a config file exists and is not valid JSON with comments."""
    try:
        return is_damaged_text(place, read_regular(place))
    except OSError:
        return False


def is_damaged_text(place: Path, text: bytes) -> bool:
    """Return whether a text is not a valid config file: not JSON with comments."""
    try:
        OwnServers(place, text)
    except DocumentError:
        return True
    return False


def bring_back(place: Path, text: bytes) -> Path:
    """Write an earlier version in place of a damaged file, as `foretool doctor --undo` does; return the folder with the
    damaged one. Raises `ChangeError` and `OSError`."""
    change = FileChange(place, read_regular(place), text, "an earlier version")
    return changes.write_changes([change], copies_of(place), what="doctor")


def read_own_servers(path: Path) -> OwnServers:
    """Read our file, which may be missing. Raises `OSError` and `DocumentError`."""
    try:
        return OwnServers(path, read_regular(path))
    except FileNotFoundError:
        return OwnServers(path, None)


class ConfigChange(Struct, frozen=True):
    """One value of the config that is to be another."""

    keys: Keys
    """From the top of the file; the first one is `foretool` or `servers`, whatever the file calls the servers."""
    value: Any
    adds: bool = False
    """The value is one more item of a list."""

    @property
    def text(self) -> str:
        """The change as `--set` takes it."""
        keys = self.keys[1:] if self.keys[0] == "foretool" else self.keys
        value = self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False)
        return f"{'.'.join(keys)}{'+=' if self.adds else '='}{value}"

    def make(self, own: OwnServers) -> None:
        """Make the change in the text of a file. Raises `DocumentError`."""
        first, *rest = self.keys
        keys = (own.key if first == "servers" else first, *rest)
        if self.adds:
            own.add_item(keys, str(self.value))
        else:
            own.set_value(keys, self.value)


def change_config(config: Config, own: OwnServers, changes: Sequence[ConfigChange]) -> Config:
    """Return the config that its file would be with these changes; `own` is changed with it. Raises `ConfigError` and
    `DocumentError`."""
    for each in changes:
        each.make(own)
    new = parse(own.text().encode(), own.path)
    return replace(new, settings=replace(new.settings, storage=config.settings.storage), named_by=config.named_by)

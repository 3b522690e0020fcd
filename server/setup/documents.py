"""Config files as people wrote them: a value is read, set or removed, and every other character stays.

JSON with comments is edited in its text: the scanner of `config.jsonc` says where each value stands. The kept libraries
for it need Node or are under the GPL (docs/decisions/0018-setup.md). TOML is edited by tomlkit, YAML by ruamel.yaml.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from foretool.server.config import jsonc

Kind = Literal["json", "toml", "yaml"]
Keys = tuple[str, ...]
"""The keys that lead from the top of a document to a value."""

_BOM: Final = "\ufeff"
_LARGEST_YAML: Final = 200_000
"""Most values of a YAML text with its aliases written out: ten aliases of ten aliases soon stand for billions."""


class DocumentError(ValueError):
    """The text is not what its format demands; the message says where, what was found and the way out."""


class ConfigDocument(Protocol):
    """One text in one format."""

    def data(self) -> Any:
        """Return everything as plain values."""

    def set(self, keys: Keys, value: object) -> None:
        """Set a value; objects that are missing on the way are added. Raises `DocumentError` if one is no object."""

    def remove(self, keys: Keys, *, with_comments: bool = False) -> None:
        """Remove a value and its key; nothing happens if it is not there. `with_comments`: also what the text says of
        it, right above it and behind it."""

    def text(self) -> str:
        """Return the text as it is now."""


def open_document(text: str, kind: Kind) -> ConfigDocument:
    """Read a text, which may be empty. Raises `DocumentError`."""
    if kind == "toml":
        return _Toml(text)
    return _Yaml(text) if kind == "yaml" else JsonDocument(text)


def value_at(data: Any, keys: jsonc.Path) -> Any:
    """Return the value that keys lead to; None if there is none. In a list a key means the item of this name, or of
    this number."""
    for key in keys:
        if isinstance(key, int):
            if not isinstance(data, list) or key >= len(data):
                return None
            data = data[key]
        elif isinstance(data, list) and (position := _named(data, key)) is not None:
            data = data[position]
        elif isinstance(data, Mapping) and key in data:
            data = data[key]
        else:
            return None
    return data


def members_at(data: Any, keys: Keys) -> Mapping[Any, Any]:
    """Return the object that keys lead to; of a list, its items by their names."""
    found = value_at(data, keys)
    if isinstance(found, list):
        found = {
            each["name"]: each for each in found if isinstance(each, Mapping) and isinstance(each.get("name"), str)
        }
    return found if isinstance(found, Mapping) else {}


class JsonDocument:
    """A text in JSON that may hold comments and trailing commas."""

    def __init__(self, text: str) -> None:
        self._bom = _BOM if text.startswith(_BOM) else ""
        self._text = text.removeprefix(_BOM)
        if not self._text.strip():
            self._text = "{}\n"
        self.data()

    def data(self) -> Any:
        try:
            return jsonc.loads(self._text)
        except jsonc.JsonError as error:
            line, column = jsonc.line_and_column(self._text, error.offset)
            raise DocumentError(f"{line}:{column}: {error}") from None

    def text(self) -> str:
        return self._bom + self._text

    def set(self, keys: jsonc.Path, value: object) -> None:
        data = self.data()
        places = jsonc.places(self._text)
        if keys not in places.values:
            self._add(data, tuple(map(str, keys)), value)
            return
        if value_at(data, keys) == value:
            return
        indent = self._indent_of(places.keys.get(keys, 0))
        self._splice(places.values[keys], places.ends[keys], self._write(value, indent))

    def _add(self, data: Any, keys: Keys, value: object) -> None:
        """Add a value that is not there, and the objects that are missing on the way."""
        for depth in range(len(keys)):
            parent = value_at(data, keys[:depth])
            if not isinstance(parent, Mapping):
                raise DocumentError(f"{'.'.join(keys[:depth]) or 'the top'}: expected an object")
            if keys[depth] not in parent:
                for key in reversed(keys[depth + 1 :]):
                    value = {key: value}
                self._insert(keys[:depth], keys[depth], value)
                return

    def remove(self, keys: Keys, *, with_comments: bool = False) -> None:
        # A member that stands there twice goes as a whole: the earlier one would count from now on.
        while keys in (places := jsonc.places(self._text)).keys:
            if with_comments:
                self._remove_comments(keys)
                places = jsonc.places(self._text)
            siblings = [path for path in places.keys if path[:-1] == keys[:-1]]
            self._cut(places, keys, siblings)

    def member_text(self, keys: Keys) -> tuple[str, str] | None:
        """Return the text of a member, with the comments before it that `remove` takes too, and the comment behind its
        comma; None if it is not there."""
        places = jsonc.places(self._text)
        if keys not in places.keys:
            return None
        key, end = places.keys[keys], places.ends[keys]
        behind = self._comment_behind(end)
        line = self._text.rfind("\n", 0, key) + 1
        start = min(line, self._comments_above(line)) if self._comments_before(key) == line else key
        return self._text[start:end], behind[1].rstrip("\r") if behind else ""

    def copy_member(self, keys: Keys, source: JsonDocument) -> None:
        """Add a member as it is written in `source`, comments included. If objects around it are missing here, the
        outermost missing one is added whole."""
        places = jsonc.places(self._text)
        depth = next((depth for depth in range(1, len(keys)) if keys[:depth] not in places.values), len(keys))
        written = source.member_text(keys[:depth])
        if written is None or not isinstance(value_at(self.data(), keys[: depth - 1]), Mapping):
            self.set(keys, value_at(source.data(), keys))
        elif keys not in places.values:
            self._insert_text(keys[: depth - 1], *written)

    def _remove_comments(self, keys: Keys) -> None:
        """Remove the comment behind a member on its last line, those before it on its first, and the lines of comments
        right above it."""
        places = jsonc.places(self._text)
        if keys not in places.keys:
            return
        if behind := self._comment_behind(places.ends[keys]):
            self._splice(behind.start(1), behind.end(1), "\r" if behind[1].endswith("\r") else "")
        key = places.keys[keys]
        line = self._text.rfind("\n", 0, key) + 1
        if self._comments_before(key) == line:
            indent = line + len(self._indent_of(key))
            self._splice(indent, key, "")
            self._splice(self._comments_above(line), line, "")

    def _comment_behind(self, end: int) -> re.Match[str] | None:
        """Find the comment behind a value and its comma, on the same line; group 1 is the comment."""
        pattern = r"(?:[ \t]*,)?([ \t]*//[^\n]*|[ \t]*/\*[^\n]*?\*/[ \t]*(?=\r?\n))"
        return re.compile(pattern).match(self._text, end)

    def _comments_before(self, key: int) -> int:
        """Return where the line of a key begins if there are only comments before it, else the key."""
        line = self._text.rfind("\n", 0, key) + 1
        return line if re.fullmatch(r"[ \t]*(?:/\*(?:(?!\*/)[^\n])*\*/[ \t]*)*", self._text[line:key]) else key

    def _comments_above(self, line: int) -> int:
        """Return where the lines of comments right above a line begin."""
        above = re.search(
            r"(?:^[ \t]*(?://[^\n]*|/\*(?:(?!\*/)[\s\S])*\*/[ \t]*\r?)\n)+\Z", self._text[:line], re.MULTILINE
        )
        return above.start() if above else line

    def add_item(self, keys: jsonc.Path, item: object) -> None:
        """Add an item at the end of a list, which is made if it is missing. Raises `DocumentError` if it is no list."""
        found = value_at(self.data(), keys)
        if found is None:
            self.set(keys, [item])
            return
        if not isinstance(found, list):
            raise DocumentError(f"{'.'.join(map(str, keys))}: expected a list")
        if item in found:
            return
        places = jsonc.places(self._text)
        opened, closed = places.values[keys], places.ends[keys] - 1
        if not found:
            self._splice(closed, closed, self._write(item, None))
            return
        last: jsonc.Path = (*keys, len(found) - 1)
        end = places.ends[last]
        comma = self._comma_after(end)
        if "\n" not in self._text[opened:closed]:
            start, between = (end, ", ") if comma is None else (comma + 1, " ")
            self._splice(start, start, between + self._write(item, None))
            return
        # A comment may follow the last item, on its line or on lines of its own.
        stop, indent = len(self._text[:closed].rstrip()), self._indent_of(places.values[last])
        line = self._newline() + indent + self._write(item, indent)
        self._splice(stop, stop, line + ("," if comma is not None else ""))
        if comma is None:
            self._splice(end, end, ",")

    def remove_item(self, keys: jsonc.Path, item: object) -> None:
        """Remove an item from a list; nothing happens if it is not there."""
        found = value_at(self.data(), keys)
        if isinstance(found, list) and item in found:
            places = jsonc.places(self._text)
            siblings: list[jsonc.Path] = [(*keys, index) for index in range(len(found))]
            self._cut(places, siblings[found.index(item)], siblings)

    def _cut(self, places: jsonc.Places, place: jsonc.Path, siblings: Sequence[jsonc.Path]) -> None:
        """Remove a member of an object or an item of a list, with one comma and its line."""
        start, end = places.keys.get(place, places.values[place]), places.ends[place]
        text, comma = self._text, self._comma_after(end)
        if comma is not None:
            end = comma + 1
        elif (before := self._comma_before(places, place, siblings)) is not None:
            # The comma goes, and what stands between it and the key, such as a comment, stays.
            self._splice(before, before + 1, "")
            start, end = start - 1, end - 1
        text = self._text
        line = text.rfind("\n", 0, start) + 1
        rest = re.compile(r"[ \t]*(?:\r?\n|\Z)").match(text, end)
        if not text[line:start].strip(" \t") and rest:
            start, end = line, rest.end()
        elif comma is not None and text[end : end + 1] == " ":
            end += 1
        elif comma is None and text[start - 1] == " ":
            start -= 1
        self._splice(start, end, "")
        places = jsonc.places(self._text)
        opened, closed = places.values[place[:-1]], places.ends[place[:-1]]
        if not self._text[opened + 1 : closed - 1].strip():
            self._splice(opened + 1, closed - 1, "")

    def _insert(self, parent: Keys, key: str, value: object) -> None:
        """Add a member at the end of an object."""
        places = jsonc.places(self._text)
        members = [path for path in places.keys if path[:-1] == parent]
        inside = self._text[places.values[parent] + 1 : places.ends[parent] - 1]
        indent = self._inner_indent(places, parent) if not members or "\n" in inside else None
        self._insert_text(parent, f"{self._write(key, None)}: {self._write(value, indent)}")

    def _insert_text(self, parent: Keys, written: str, behind: str = "") -> None:
        """Add a member at the end of an object, as it is written. `behind`: what stands behind its comma."""
        places = jsonc.places(self._text)
        opened, closed = places.values[parent], places.ends[parent] - 1
        members = [path for path in places.keys if path[:-1] == parent]
        inside = self._text[opened + 1 : closed]
        outer, ending = self._indent_of(places.keys.get(parent, opened)), self._newline()
        has_line = written[:1] in (" ", "\t") or written.startswith(("//", "/*"))
        line = ending + ("" if has_line else self._inner_indent(places, parent)) + written
        if not members:
            kept = inside.rstrip() if inside.strip() else ""
            self._splice(opened + 1, closed, f"{kept}{line}{behind}{ending}{outer}")
            return
        last = members[-1]
        end, comma = places.ends[last], self._comma_after(places.ends[last])
        if "\n" not in inside and "\n" not in written and not behind:
            start, between = (end, ",") if comma is None else (comma + 1, "")
            self._splice(start, closed, f"{between} {written.lstrip()}" + (" " if inside.endswith(" ") else ""))
            return
        # A comment may follow the last value, on its line or on lines of its own.
        stop = len(self._text[:closed].rstrip())
        rest = self._text[stop:closed]
        line += ("," if comma is not None else "") + behind
        self._splice(stop, closed, line + (rest if "\n" in rest else ending + outer))
        if comma is None:
            self._splice(end, end, ",")

    def _inner_indent(self, places: jsonc.Places, parent: Keys) -> str:
        """Return the blanks before a new member of an object on a line of its own."""
        opened = places.values[parent]
        members = [path for path in places.keys if path[:-1] == parent]
        if members and "\n" in self._text[opened : places.ends[parent]]:
            return self._indent_of(places.keys[members[-1]])
        return self._indent_of(places.keys.get(parent, opened)) + self._step()

    def _comma_after(self, end: int) -> int | None:
        """Return the offset of the comma that follows a value, if one does."""
        at = self._skip(end)
        return at if self._text[at : at + 1] == "," else None

    def _comma_before(self, places: jsonc.Places, place: jsonc.Path, siblings: Sequence[jsonc.Path]) -> int | None:
        position = siblings.index(place)
        return self._comma_after(places.ends[siblings[position - 1]]) if position else None

    def _skip(self, at: int) -> int:
        found = re.compile(r"(?s)(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*").match(self._text, at)
        return found.end() if found else at

    def _splice(self, start: int, end: int, new: str) -> None:
        self._text = self._text[:start] + new + self._text[end:]

    def _write(self, value: object, indent: str | None) -> str:
        """Write a value in lines that begin with `indent`, in one line if it is None."""
        if indent is None:
            return json.dumps(value, ensure_ascii=False)
        lines = json.dumps(value, ensure_ascii=False, indent=self._step()).split("\n")
        return (self._newline() + indent).join(lines)

    def _indent_of(self, offset: int) -> str:
        """Return the blanks that the line of an offset begins with."""
        line = self._text.rfind("\n", 0, offset) + 1
        found = re.compile(r"[ \t]*").match(self._text, line)
        return found[0] if found else ""

    def _step(self) -> str:
        found = re.search(r"\n([ \t]+)\S", self._text)
        return found[1] if found else "  "

    def _newline(self) -> str:
        return "\r\n" if "\r\n" in self._text else "\n"


class _Toml:
    def __init__(self, text: str) -> None:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError

        self._bom = _BOM if text.startswith(_BOM) else ""
        try:
            self._document = tomlkit.parse(text.removeprefix(_BOM))
        except TOMLKitError as error:
            raise DocumentError(f"cannot be read as TOML ({error}); correct it") from None

    def data(self) -> Any:
        return self._document.unwrap()

    def text(self) -> str:
        return self._bom + self._document.as_string()

    def set(self, keys: Keys, value: object) -> None:
        import tomlkit
        from tomlkit.items import InlineTable

        if value_at(self.data(), keys) == value:
            return
        table: Any = self._document
        for depth, key in enumerate(keys[:-1]):
            if key not in table:
                is_inline = isinstance(table, InlineTable)
                table[key] = tomlkit.inline_table() if is_inline else tomlkit.table(is_super_table=True)
            table = table[key]
            if not isinstance(table, Mapping):
                raise DocumentError(f"{'.'.join(keys[: depth + 1])}: expected a table")
        is_inline = isinstance(table, InlineTable)
        table[keys[-1]] = _toml_table(value, is_inline=is_inline) if isinstance(value, Mapping) else value
        if not is_inline:
            _end_with_blank_line(table[keys[-1]])

    def remove(self, keys: Keys, *, with_comments: bool = False) -> None:
        table: Any = self._document
        for key in keys[:-1]:
            if not isinstance(table, Mapping) or key not in table:
                return
            table = table[key]
        if isinstance(table, Mapping) and keys[-1] in table:
            del table[keys[-1]]  # type: ignore[attr-defined]


def _toml_table(values: Mapping[str, Any], *, is_inline: bool) -> Any:
    import tomlkit

    table = tomlkit.inline_table() if is_inline else tomlkit.table()
    for key, value in values.items():
        table[key] = _toml_table(value, is_inline=is_inline) if isinstance(value, Mapping) else value
    return table


def _end_with_blank_line(table: Any) -> None:
    import tomlkit

    if isinstance(table, Mapping):
        last = list(table.values())[-1] if table else None
        if isinstance(last, Mapping):
            _end_with_blank_line(last)
        else:
            table.add(tomlkit.nl())  # type: ignore[attr-defined]


class _Yaml:
    def __init__(self, text: str) -> None:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 1 << 20
        offset = _list_offset(text)
        self._yaml.indent(mapping=_yaml_step(text), sequence=offset + 2, offset=offset)
        self._crlf = "\r\n" in text
        self._bom = _BOM if text.startswith(_BOM) else ""
        try:
            self._data: Any = self._yaml.load(text.removeprefix(_BOM)) or {}
            size = _values_written_out(self._data, {})
        except YAMLError as error:
            raise DocumentError(f"cannot be read as YAML ({' '.join(str(error).split())[:200]}); correct it") from None
        except RecursionError:
            raise DocumentError("cannot be read as YAML (it is nested too deeply); correct it") from None
        if size > _LARGEST_YAML:
            raise DocumentError(f"its aliases (*name) stand for over {_LARGEST_YAML:,} values; write fewer of them")
        self._text: str | None = text

    def data(self) -> Any:
        return json.loads(json.dumps(self._data, default=str))

    def text(self) -> str:
        if self._text is None:
            written = io.StringIO()
            self._yaml.dump(self._data, written)
            found = written.getvalue()
            self._text = self._bom + (found.replace("\n", "\r\n") if self._crlf else found)
        return self._text

    def set(self, keys: Keys, value: object) -> None:
        if value_at(self.data(), keys) == value:
            return
        table = self._data
        for depth, key in enumerate(keys[:-1]):
            if isinstance(table, list) and (position := _named(table, key)) is not None:
                table = table[position]
                continue
            if not isinstance(table, dict):
                raise DocumentError(f"{'.'.join(keys[:depth]) or 'the top'}: expected a mapping")
            if key not in table or table[key] is None:
                table[key] = {}
            table = table[key]
        if not isinstance(table, (dict, list)):
            raise DocumentError(f"{'.'.join(keys[:-1])}: expected a mapping")
        if isinstance(table, list):
            position = _named(table, keys[-1])
            item = {"name": keys[-1], **value} if isinstance(value, Mapping) else value
            if position is None:
                table.append(item)
            else:
                table[position] = item
        else:
            table[keys[-1]] = value
        self._text = None

    def remove(self, keys: Keys, *, with_comments: bool = False) -> None:
        table = value_at(self._data, keys[:-1])
        if isinstance(table, list):
            if (position := _named(table, keys[-1])) is not None:
                del table[position]
                self._text = None
        elif isinstance(table, Mapping) and keys[-1] in table:
            del table[keys[-1]]  # type: ignore[attr-defined]
            self._text = None


def _values_written_out(value: Any, sizes: dict[int, int]) -> int:
    """Count a value of a YAML document and all within it, with each alias written out. The reader has cut loops.
    `sizes`: what is counted already, by identity."""
    if not isinstance(value, (Mapping, list)):
        return 1
    if id(value) not in sizes:
        inner = value.values() if isinstance(value, Mapping) else value
        sizes[id(value)] = 1 + sum(_values_written_out(each, sizes) for each in inner)
    return sizes[id(value)]


def _named(items: list[Any], name: str) -> int | None:
    """Return the position of the item of this name."""
    return next((at for at, item in enumerate(items) if isinstance(item, Mapping) and item.get("name") == name), None)


def _list_offset(text: str) -> int:
    """Return how far the dashes of a list stand behind their key."""
    found = re.search(r"^([ ]*)[^\s#-][^\n]*:[ ]*\n([ ]*)- ", text, re.MULTILINE)
    return max(0, len(found[2]) - len(found[1])) if found else 0


def _yaml_step(text: str) -> int:
    found = re.search(r"^[^\s#-][^\n]*:[ ]*\n([ ]+)[^\s-]", text, re.MULTILINE)
    return len(found[1]) if found else 2

"""Reads JSON with comments and trailing commas, and finds where in the text each value stands.

`loads` is as fast as msgspec on plain JSON. `places` scans the text, which takes about 100 times as long, so it runs
only when there is something to report.
"""

import re
from typing import Any, NamedTuple

import msgspec

_BOM = "\ufeff"
"""The byte order mark with which some editors begin a file."""

Path = tuple[str | int, ...]
"""The keys and indexes that lead from the top of the document to a value."""


class JsonError(ValueError):
    """The text is not JSON; the message says what was found and what to do. `offset` counts characters."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset = offset


class Places(NamedTuple):
    """The character offsets of every value of a text, of its end, and of its key if it has one."""

    values: dict[Path, int]
    keys: dict[Path, int]
    ends: dict[Path, int]
    """Of the first character after the value."""

    def of(self, path: Path) -> int:
        """Return the offset of a value, or of the nearest enclosing value that is in the text."""
        while path not in self.values and path:
            path = path[:-1]
        return self.values.get(path, 0)


def loads(text: str) -> Any:
    """Decode a text that may contain comments and trailing commas. Raises `JsonError`."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    try:
        return msgspec.json.decode(blank_comments(text))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        places(text)  # raises a better error, unless the scanner accepts what the decoder refuses
        raise JsonError(0, f"cannot be read as JSON ({error})") from None


# In both patterns an unclosed string or comment runs to the end of the text, which keeps them linear on any input.
# They are compiled when they are needed: that takes 1 ms, and most files need none.
_COMMENT = r'(?s)"[^"\\]*(?:\\.[^"\\]*)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)'
_TRAILING_COMMA = r'(?s)"[^"\\]*(?:\\.[^"\\]*)*"?|,(?=[ \t\r\n]*[}\]])'


def blank_comments(text: str) -> str:
    """Replace comments, trailing commas and a byte order mark by blanks, so that every offset stays valid."""
    text = " " * text.startswith(_BOM) + text.removeprefix(_BOM)
    return re.sub(_TRAILING_COMMA, _blank_comma, re.sub(_COMMENT, _blank_comment, text))


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of an offset, counted from 1; columns count characters."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def places(text: str) -> Places:
    """Find every value in the text. Raises `JsonError` for what is not JSON, a comment or a trailing comma."""
    try:
        return _Scanner(text).document()
    except RecursionError:
        raise JsonError(0, "brackets are nested too deeply") from None


def repeated_keys(text: str) -> list[tuple[Path, int]]:
    """Return the keys that an object has twice, each with the offset of the later one; a blank text has none. Raises
    `JsonError`."""
    scanner = _Scanner(text)
    try:
        if scanner.next():
            scanner.document()
    except RecursionError:
        return []
    again = {path for path, _ in scanner.repeated}
    # What stands inside an object that is there twice is not told as well.
    return [(path, at) for path, at in scanner.repeated if again.isdisjoint(path[:end] for end in range(len(path)))]


def _blank_comment(match: re.Match[str]) -> str:
    found = match[0]
    closed = found.startswith("//") or (found.startswith("/*") and found.endswith("*/") and len(found) >= 4)
    return re.sub(r"[^\n]", " ", found) if closed else found


def _blank_comma(match: re.Match[str]) -> str:
    text, before = match.string, match.start() - 1
    while before >= 0 and text[before] in " \t\r\n":
        before -= 1
    # A comma without a value before it is a mistake, which the scanner reports.
    is_trailing = match[0] == "," and before >= 0 and text[before] not in "{[,:"
    return " " if is_trailing else match[0]


_BLANKS = r"(?s)(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*"
_SCALAR = r"(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.+-])"
# Possessive, because an unclosed string would take exponential time otherwise. Group 1 is the closing quote, if any.
_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+(")?'


class _Scanner:
    """Parses the text by recursive descent; `at` is the offset of the next unread character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = int(text.startswith(_BOM))
        self.places = Places({}, {}, {})
        self.repeated: list[tuple[Path, int]] = []
        self.match_blanks = re.compile(_BLANKS).match
        self.match_scalar = re.compile(_SCALAR).match
        self.match_string = re.compile(_STRING).match

    def document(self) -> Places:
        if not self.next():
            raise JsonError(self.at, 'the file is empty; write {"mcpServers": {}}')
        self.value(())
        if self.next():
            raise JsonError(
                self.at,
                f"expected the end of the file, found {self.found()}; remove it, or the superfluous bracket above",
            )
        if self.repeated:
            self.drop_earlier()
        return self.places

    def drop_earlier(self) -> None:
        """Forget what stands inside a member whose key comes again, as JSON does, and keep the order of the text."""
        latest = dict(self.repeated)
        for found in self.places:
            kept = [
                (at, path)
                for path, at in found.items()
                if all(at >= latest.get(path[:end], 0) for end in range(1, len(path) + 1))
            ]
            found.clear()
            found.update((path, at) for at, path in sorted(kept, key=lambda each: each[0]))

    def value(self, path: Path) -> None:
        char = self.next()
        self.places.values[path] = self.at
        if char in ("{", "["):
            self.items(path, "}" if char == "{" else "]")
        elif char == '"':
            self.string()
        elif scalar := self.match_scalar(self.text, self.at):
            self.decoded(scalar[0])
            self.at = scalar.end()
        else:
            raise JsonError(self.at, f"expected a value, found {self.found()}; {self.way_out(char)}")
        self.places.ends[path] = self.at

    def items(self, path: Path, close: str) -> None:
        opened, index = self.at, 0
        self.at += 1
        while (char := self.next()) != close:
            self.value((*path, self.key(path, char) if close == "}" else index))
            if (char := self.next()) == ",":
                self.at += 1
            elif char != close:
                opener = f'"{self.text[opened]}" of line {line_and_column(self.text, opened)[0]}'
                remedy = f"put a comma between the two, or close the {opener}" if char else f"close the {opener}"
                raise JsonError(self.at, f'expected "," or "{close}", found {self.found()}; {remedy}')
            index += 1
        self.at += 1

    def key(self, path: Path, char: str) -> str:
        start = self.at
        if char != '"':
            remedy = self.way_out(char, "close the bracket with }")
            raise JsonError(self.at, f"expected a key in double quotes, found {self.found()}; {remedy}")
        key = self.string()
        if (*path, key) in self.places.keys:
            self.repeated.append(((*path, key), start))
        self.places.keys[*path, key] = start
        if self.next() != ":":
            raise JsonError(self.at, f'expected ":" after the key, found {self.found()}; write "key": value')
        self.at += 1
        return key

    def string(self) -> str:
        """Read and decode the string that starts here."""
        match = self.match_string(self.text, self.at)
        if match is None or not match[1]:
            raise self.open_string(match.end() if match else self.at)
        text = str(self.decoded(match[0]))
        self.at = match.end()
        return text

    def open_string(self, stopped: int) -> JsonError:
        char = self.text[stopped : stopped + 1]
        if char == "\\":
            return JsonError(stopped, "found a backslash that does not start a JSON escape; write \\\\ for a backslash")
        if char == "\t":
            return JsonError(stopped, "found a tab inside a string; write \\t")
        return JsonError(
            self.at, 'found a string that is not closed on its line; close it with " or write \\n for a line break'
        )

    def decoded(self, token: str) -> Any:
        """Decode a token, and refuse what the grammar allows: half a surrogate pair, a number out of range."""
        try:
            return msgspec.json.decode(token)
        except (msgspec.MsgspecError, UnicodeError):
            what = "half a surrogate pair" if token[0] == '"' else "a number that is out of range"
            raise JsonError(self.at, f"found {what}; correct it") from None

    def next(self) -> str:
        """Skip blanks and comments and return the next character without reading it; "" at the end."""
        blanks = self.match_blanks(self.text, self.at)
        self.at = blanks.end() if blanks else self.at
        return self.text[self.at : self.at + 1]

    def found(self) -> str:
        """Describe the next character. Never more than one, because an unquoted text may be a secret."""
        char = self.text[self.at : self.at + 1]
        if self.text.startswith("/*", self.at):
            return "a comment that is never closed"
        return repr(char) if char else "the end of the file"

    def way_out(self, char: str, at_end: str = "close every open bracket") -> str:
        if not char:
            return at_end
        if self.text.startswith("/*", self.at):
            return "close it with */"
        if char == ",":
            return "remove one comma"
        if char in "}]":
            return "write a value, or remove what stands before it"
        return "write text in double quotes; write true, false and null in lower case without quotes"

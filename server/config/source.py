"""The text of a config file, and where in it each value stands.

A `Source` turns a path of keys into `file:line:column`, so that every error names its place.
"""

from functools import cached_property

from foretool.server.config import jsonc
from foretool.server.config.errors import ConfigError, Invalid, dotted, one_line


class Source:
    """The decoded text of one file. Raises `ConfigError` if it is not JSON."""

    def __init__(self, name: str, text: str) -> None:
        self.name = one_line(name)
        self.text = text
        try:
            self.document = jsonc.loads(text)
        except jsonc.JsonError as error:
            line, column = jsonc.line_and_column(text, error.offset)
            raise ConfigError(f"{self.name}:{line}:{column}: {error}") from None

    @classmethod
    def read(cls, data: bytes, name: str) -> "Source":
        """Decode a file of this name. Raises `ConfigError` if it is not UTF-8 or not JSON."""
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ConfigError(f"{one_line(name)}:1:1: expected UTF-8, found UTF-16; save the file as UTF-8")
        try:
            return cls(name, data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            before = data[: error.start].decode("utf-8-sig", "replace")
            line, column = jsonc.line_and_column(before, len(before))
            found = f"byte 0x{data[error.start]:02x}"
        raise ConfigError(f"{one_line(name)}:{line}:{column}: expected UTF-8, found {found}; save the file as UTF-8")

    @cached_property
    def places(self) -> jsonc.Places:
        try:
            return jsonc.places(self.text)
        except jsonc.JsonError:
            # The decoder reads deeper brackets than the scanner; errors in them name line 1.
            return jsonc.Places({}, {})

    def describe(self, error: Invalid) -> str:
        """Return the problem on one line, behind its file, line, column and key."""
        offset = self.places.of_key(error.path) if error.at_key else self.places.of(error.path)
        line, column = jsonc.line_and_column(self.text, offset)
        key = f" {dotted(error.path)}:" if error.path else ""
        return f"{self.name}:{line}:{column}:{key} {error}"

    def error(self, error: Invalid) -> ConfigError:
        """Return the error that refuses the whole file because of this value."""
        return ConfigError(self.describe(error))

"""Log lines go to stderr, one line for each record, without secrets and without what would control a terminal.

Only printable characters, as Unicode has them, may reach a terminal, a log line, a CSV file or a JSON file of ours.
Every other character (controls of 7 and 8 bits, marks of direction, line separators, tags) could steer a terminal or
hide a text. `str.isprintable` is the one list of them.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import msgspec

from foretool.storage.redaction import hide_shapes

if TYPE_CHECKING:
    from foretool.server.config.loader import Config


def printable(text: str, keep: str = "") -> str:
    """Return a text with a space in place of each character that is not printable. `keep`: those that stay, such as
    line breaks."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else " " for char in text)


def printable_json(data: bytes) -> bytes:
    """Return a JSON text of the same value, with escapes in place of characters that are not printable.

        printable_json(b'{"a": "\\xc2\\x9b31m"}') == b'{"a": "\\\\u009b31m"}'

    Line breaks and blanks between the values stay. A character that needs an escape can only stand within a string.
    """
    if data.isascii() and b"\x7f" not in data:
        return data
    text = data.decode("utf-8", "surrogatepass")
    # By the few different ones: a record may hold millions of them.
    odd = {ord(char): _escaped(char) for char in set(text) if char > "\x7e" and not char.isprintable()}
    return text.translate(odd).encode() if odd else data


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


log = logging.getLogger("foretool")


class Redacting(logging.Formatter):
    """A formatter that removes secrets and control characters, and writes a traceback as one line."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__("foretool: %(levelname)s: %(message)s")
        self.redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return log_line(hide_shapes(self.redact(super().format(record))))


class JsonLines(Redacting):
    """Writes one JSON object per line: `time` (UTC), `level`, `logger`, `message`. Nothing else of a record leaves."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        said = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": log_line(hide_shapes(self.redact(message))),
        }
        return msgspec.json.encode(said).decode()


def log_line(text: str) -> str:
    """Return the text as one line: ` | ` between its lines, a space for whatever else would control a terminal."""
    text = " | ".join(filter(None, map(str.strip, text.splitlines())))
    return printable(text)


def start_logging(config: Config, stream: TextIO = sys.stderr) -> None:
    """Log from the config's level on; libraries only from `warning` on, since they log URLs with their queries."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(config))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    log.setLevel(config.settings.log_level.upper())


def _formatter(config: Config) -> Redacting:
    return (JsonLines if config.settings.log_format == "json" else Redacting)(config.secrets.redact)


@contextmanager
def mute_logging() -> Iterator[None]:
    """Write no line of our log inside the block, for a command that says the same in better words."""
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def reload_logging(config: Config) -> None:
    """Take level and secrets from a new config. Does nothing if somebody else has set up logging."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, Redacting):
            handler.setFormatter(_formatter(config))
            log.setLevel(config.settings.log_level.upper())

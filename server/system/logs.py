"""Log lines go to stderr, one line for each record, without secrets and without what would control a terminal."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import msgspec

from foretool.server.system.printable import printable
from foretool.storage.redaction import hide_shapes

if TYPE_CHECKING:
    from foretool.server.config.loader import Config

log = logging.getLogger("foretool")


class Redacting(logging.Formatter):
    """Removes secrets and control characters from the finished text; the lines of a traceback become one."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__("foretool: %(levelname)s: %(message)s")
        self.redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return one_line(hide_shapes(self.redact(super().format(record))))


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
            "message": one_line(hide_shapes(self.redact(message))),
        }
        return msgspec.json.encode(said).decode()


def one_line(text: str) -> str:
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
    """Write no line of our log, for a command that says the same in better words."""
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

"""Log lines go to stderr, one line for each record, without secrets and without what would control a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

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


def one_line(text: str) -> str:
    """Return the text as one line: ` | ` between its lines, a space for whatever else would control a terminal."""
    text = " | ".join(filter(None, map(str.strip, text.splitlines())))
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def start_logging(config: Config, stream: TextIO = sys.stderr) -> None:
    """Log from the config's level on; libraries only from `warning` on, since they log URLs with their queries."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Redacting(config.secrets.redact))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    log.setLevel(config.settings.log_level.upper())


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
            handler.formatter.redact = config.secrets.redact
            log.setLevel(config.settings.log_level.upper())

"""How commands print: JSON for programs, tables for people, times and sizes in words.

Texts of upstreams and clients are printed on one line, without the characters that would control a terminal; `--json`
escapes them instead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretool.server.trust import text as trust_text

T = TypeVar("T")
WIDE: Final = 10_000
"""Width of the output when it is not a terminal, so that no line is cut for another program."""

_STEPS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def emit(value: Any) -> None:
    """Print a value as JSON: dataclasses and whatever msgspec encodes; anything else as its text."""
    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def show(value: T, as_json: bool, print_value: Callable[[T], object]) -> int:
    """Print a value as JSON, or for people. Returns exit status 0."""
    if as_json:
        emit(value)
    else:
        print_value(value)
    return 0


def say(text: str = "", style: str = "") -> None:
    """Print a line on stdout; line breaks at its ends stay, others become spaces."""
    inner = text.strip("\n")
    before, _, after = text.partition(inner)
    console().print(Text(f"{before}{clean(inner)}{after}", style))


def say_lines(text: str) -> None:
    """Print a text of several lines on stdout, whose line breaks are ours."""
    for line in text.split("\n"):
        console().print(Text(clean(line)))


def warn(text: str) -> None:
    """Print a remark on stderr, beside the answer."""
    click.echo(clean(text), err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print rows. A column name that ends in `#` holds numbers; the text of one that ends in `…` may wrap."""
    drawn = Table(title=Text(clean(title)) if title else None, box=box.SIMPLE_HEAD, title_justify="left")
    for name in columns:
        drawn.add_column(
            name.rstrip("#…"),
            justify="right" if name.endswith("#") else "left",
            overflow="fold" if name.endswith("…") else "ellipsis",
            no_wrap=not name.endswith("…"),
        )
    for row in rows:
        drawn.add_row(*(cell if isinstance(cell, Text) else Text(clean(str(cell))) for cell in row))
    console().print(drawn)


def console(*, error: bool = False) -> Console:
    """Return a console for stdout or stderr. It is created for each use, because tests replace the streams."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=not stream.isatty())


def clean(text: str) -> str:
    """Return a text as one line that cannot move the cursor, change colours, hide or reorder anything.

    A text of a server or a client that breaks its line could show a row that is not there.
    """
    text = trust_text.clean(text.replace("\x1b", " "))
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def ago(at: float) -> str:
    """Say how long ago a time was: `3 min ago`, `just now`, or `never` for 0."""
    if not at:
        return "never"
    elapsed = time.time() - at
    return f"{span(elapsed)} ago" if elapsed >= 1 else "just now"


def span(seconds: float) -> str:
    """Write a duration in its largest unit: `3 min`, `2 d`."""
    size, unit = next(step for step in _STEPS if seconds >= step[0] or step[0] == 1)
    return f"{max(seconds, 0) / size:.0f} {unit}"


def when(at: float) -> str:
    """Write a time as local time, to the second."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def size(count: int) -> str:
    """Write a number of bytes in its largest unit."""
    number = float(count)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: `1 tool`, `2 discoveries`, `3 misses`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}es" if noun.endswith(("s", "ch")) else f"{count:,} {noun}s"


def score_parts(parts: Mapping[str, float]) -> str:
    """Write the parts of a score: `lexical +2.50 usage +0.30`."""
    return " ".join(f"{name} {part:+.2f}" for name, part in parts.items())

"""How commands print: JSON for programs, tables for people, times and sizes in words.

Texts of upstreams and clients are shown as they are but for characters that would steer a terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE: Final = 10_000
"""Columns where nobody looks: what is piped into another program must not be cut."""

_STEPS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def emit(value: Any) -> None:
    """Print as JSON. Takes what msgspec takes, dataclasses among it; anything else as its text."""
    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def say(text: str = "", style: str = "") -> None:
    console().print(Text(clean(text), style))


def warn(text: str) -> None:
    """A remark beside the answer, on stderr."""
    click.echo(clean(text), err=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> None:
    """Print rows; a column whose name ends in `#` holds numbers, one that ends in `…` may be folded."""
    drawn = Table(title=title or None, caption=caption or None, box=box.SIMPLE_HEAD, title_justify="left")
    drawn.caption_justify = "left"
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
    """For stdout, or stderr. Made for each use: tests put other streams in their places."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=not stream.isatty())


def clean(text: str) -> str:
    """Without characters that move the cursor, change colours or break a line."""
    return text if text.isprintable() else "".join(each if each.isprintable() or each == "\n" else " " for each in text)


def ago(at: float) -> str:
    """`3 min ago`, `just now`; "never" for 0."""
    if not at:
        return "never"
    elapsed = time.time() - at
    return f"{span(elapsed)} ago" if elapsed >= 1 else "just now"


def span(seconds: float) -> str:
    """`3 min`, `2 d`."""
    size, unit = next(step for step in _STEPS if seconds >= step[0] or step[0] == 1)
    return f"{max(seconds, 0) / size:.0f} {unit}"


def when(at: float) -> str:
    """Local time to the second."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def size(count: int) -> str:
    number = float(count)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def plural(count: int, noun: str) -> str:
    """`1 tool`, `2 discoveries`, `3 misses`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}es" if noun.endswith(("s", "ch")) else f"{count:,} {noun}s"

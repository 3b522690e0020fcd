"""How commands print: JSON for programs, tables or cards for people, times and sizes in words.

Texts of upstreams and clients are printed on one line, without the characters that would control a terminal; `--json`
escapes them instead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from threading import Timer
from typing import Any, Final, TypeVar

import click
import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from foretool.server.trust import text as trust_text

T = TypeVar("T")
WIDE: Final = 10_000
"""Width of the output when it is not a terminal, so that no line is cut for another program."""
LEAST_WRAPPED: Final = 24
"""Columns that a text which may wrap needs in a table; with fewer the table becomes cards."""
PATIENCE_S: Final = 0.5
"""What takes longer than this says what it does."""

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
    """Print a line on stdout; line breaks at its ends stay, others become spaces.

    Where the terminal breaks it, what follows stands below its text, not below its spaces.
    """
    inner = text.strip("\n")
    before, _, after = text.partition(inner)
    indent = len(inner) - len(inner.lstrip(" "))
    target = console()
    if target.soft_wrap or not indent:
        target.print(Text(f"{before}{clean(inner)}{after}", style))
        return
    target.print(before, end="")
    target.print(Padding(Text(clean(inner).lstrip(" "), style), (0, 0, 0, indent), expand=False))
    target.print(after, end="")


def say_fact(name: str, value: str, style: str = "", *, indent: int = 0, column: int = 10) -> None:
    """Print a name, and what it is from a column on; where the terminal breaks the value, the rest stands below it."""
    target = console()
    label = clean(f"{' ' * indent}{name} ".ljust(indent + column))
    if target.soft_wrap:
        target.print(Text(label + clean(value), style))
        return
    grid = Table.grid()
    grid.add_column(no_wrap=True, width=len(label))
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, style), Text(clean(value), style))
    target.print(grid)


def say_lines(text: str) -> None:
    """Print a text of several lines on stdout, whose line breaks are ours."""
    for line in text.split("\n"):
        console().print(Text(clean(line)))


def warn(text: str) -> None:
    """Print a remark on stderr, beside the answer."""
    click.echo(clean(text), err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print rows as a table where it fits the terminal, and as one card per row where it does not.

    A column name that ends in `#` holds numbers; the text of one that ends in `…` may wrap. Nothing is cut. A card
    starts with the first column, or with the first two if the first one holds numbers.
    """
    cells = [[cell if isinstance(cell, Text) else Text(clean(str(cell))) for cell in row] for row in rows]
    if title:
        say(title, "bold")
    drawn = Table(box=box.SIMPLE_HEAD)
    for number, name in enumerate(columns):
        wraps, header = name.endswith("…"), name.rstrip("#…")
        texts = [Text(header), *(row[number] for row in cells)]
        width = max(text.cell_len for text in texts)
        if wraps:
            word = max(cell_len(word) for text in texts for word in text.plain.split() or [""])
            width = min(width, max(LEAST_WRAPPED, word))
        right = name.endswith("#")
        drawn.add_column(
            header, justify="right" if right else "left", overflow="fold", no_wrap=not wraps, min_width=width
        )
    for row in cells:
        drawn.add_row(*row)
    target = console()
    if Measurement.get(target, target.options.update(width=WIDE), drawn).minimum <= target.width:
        target.print(drawn)
        return
    for row in cells:
        _print_card(columns, row)


def _print_card(columns: Sequence[str], row: Sequence[Text]) -> None:
    """Print one row under its first cells, the others side by side as far as they fit; empty ones are left out."""
    heads = 2 if columns[0].endswith("#") and len(columns) > 1 else 1
    target = console()
    target.print(Text("  ").join([cell for cell in row[:heads] if cell.plain]), style="bold")
    line = Text()
    for name, cell in zip(columns[heads:], row[heads:], strict=False):
        if cell.plain in ("", "-"):
            continue
        header = name.rstrip("#…")
        part = Text.assemble((f"{header}: " if header else "", "dim"), cell)
        if line and line.cell_len + part.cell_len + 4 > target.width:
            target.print(Padding(line, (0, 0, 0, 2), expand=False))
            line = Text()
        line = Text.assemble(line, "; ", part) if line else part
    if line:
        target.print(Padding(line, (0, 0, 0, 2), expand=False))


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on stderr what is being done, and for how long, once it has taken `PATIENCE_S`; only if that is a terminal.

    The line goes away at the end.
    """
    if not sys.stderr.isatty():
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    bar = Progress(*columns, console=console(error=True), transient=True)
    bar.add_task(clean(what), total=None)
    timer = Timer(PATIENCE_S, bar.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()


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

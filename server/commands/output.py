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
from rich.table import Table
from rich.text import Text

from foretool.server.commands.exit import fold, join_commands, part_commands
from foretool.server.config.errors import plural as plural
from foretool.server.system.logs import printable, printable_json
from foretool.server.trust import text as trust_text

T = TypeVar("T")
_WIDE: Final = 10_000
"""Width of the output when it is not a terminal, so that no line is cut for another program."""
_LEAST_WRAPPED: Final = 24
"""Columns that a text which may wrap needs in a table; with fewer the table becomes cards."""
PATIENCE_S: Final = 0.5
"""What takes longer than this says what it does."""

_STEPS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def emit(value: Any) -> None:
    """Print a value as JSON: dataclasses and whatever msgspec encodes; anything else as its text."""
    written = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    click.echo(printable_json(written))  # bytes: JSON is UTF-8, whatever the terminal is


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
    if target.soft_wrap:
        target.print(Text(f"{before}{printable_text(inner)}{after}", style))
        return
    lines = _fold(target, Text(printable_text(inner).lstrip(" "), style), indent)
    shown = Text("\n").join([Text(" " * indent) + line for line in lines])
    target.print(Text.assemble(before, shown, after), no_wrap=True, overflow="ignore", crop=False)


def say_fact(name: str, value: str, style: str = "", *, indent: int = 0, column: int = 10) -> None:
    """Print a name, and what it is from a column on; where the terminal breaks the value, the rest stands below it."""
    target = console()
    label = printable_text(f"{' ' * indent}{name} ".ljust(indent + column))
    if target.soft_wrap:
        target.print(Text(label + printable_text(value), style))
        return
    lines = _fold(target, Text(printable_text(value), style), len(label))
    labels = [Text(label, style), *[Text(" " * len(label))] * len(lines)]
    _print_as_they_are(target, [begin + line for begin, line in zip(labels, lines, strict=False)])


def put_together(items: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    """Return the items in groups of the same key, in the order in which the keys first occur."""
    found: dict[object, list[T]] = {}
    for each in items:
        found.setdefault(key(each), []).append(each)
    return list(found.values())


def say_lines(text: str) -> None:
    """Print a text of several lines on stdout, whose line breaks are ours."""
    for line in text.split("\n"):
        console().print(Text(printable_text(line)))


def say_paragraph(text: str, first: str = "", rest: str = "", style: str = "") -> None:
    """Print a text within the width of the terminal; another program gets it on one line."""
    target = console()
    line = first + printable_text(text)
    if sys.stdout.isatty():
        line = fold(line, target.width - 1, rest, breaks_words=True)
    target.print(Text(line, style))


def warn(text: str) -> None:
    """Print a remark on stderr, beside the answer, within the width of the terminal."""
    said = printable_text(text)
    if sys.stderr.isatty():
        said = fold(said, console(error=True).width - 1, "  ")
    click.echo(said, err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print rows as a table where it fits the terminal, and as one card per row where it does not.

    A column name that ends in `#` holds numbers; the text of one that ends in `…` may wrap. Nothing is cut. A card
    starts with the first column, or with the first two if the first one holds numbers.
    """
    cells = [[cell if isinstance(cell, Text) else Text(printable_text(str(cell))) for cell in row] for row in rows]
    if title:
        say(title, "bold")
    headers = [Text(name.rstrip("#…")) for name in columns]
    natural = [max(text.cell_len for text in texts) for texts in zip(headers, *cells, strict=True)]
    least = [
        _least_width(width, (headers[place], *(row[place] for row in cells))) if name.endswith("…") else width
        for place, (name, width) in enumerate(zip(columns, natural, strict=True))
    ]
    target = console()
    if _width_of(natural) <= target.width:
        _draw(target, columns, headers, cells, natural)
    elif _width_of(least) <= target.width:
        drawn = Table(box=box.SIMPLE_HEAD)
        for name, header, width in zip(columns, headers, least, strict=True):
            right, wraps = name.endswith("#"), name.endswith("…")
            drawn.add_column(
                header, justify="right" if right else "left", overflow="fold", no_wrap=not wraps, min_width=width
            )
        for row in cells:
            drawn.add_row(*row)
        target.print(drawn)
    else:
        lines = [line for row in cells for line in _card(target, columns, row)]
        _print_as_they_are(target, lines)


def _least_width(width: int, texts: Iterable[Text]) -> int:
    """Return how narrow a column may be whose texts may wrap."""
    word = max(cell_len(word) for text in texts for word in text.plain.split() or [""])
    return min(width, max(_LEAST_WRAPPED, word))


def _width_of(widths: Sequence[int]) -> int:
    """Return the width of a table: each column has two spaces more, one stands between two, and two at the ends."""
    return sum(widths) + 3 * len(widths) + 1


def _draw(
    target: Console, columns: Sequence[str], headers: Sequence[Text], rows: Iterable[Sequence[Text]],
    widths: Sequence[int],
) -> None:  # fmt: skip
    """Print a table in which nothing wraps, as rich would: it takes 1.5 ms for each row, this 0.05."""
    rights = [name.endswith("#") for name in columns]
    blank = Text(" " * _width_of(widths))
    rule = Text(f" {('─' if target.encoding.startswith('utf') else '-') * (_width_of(widths) - 2)} ")
    for header in headers:
        header.stylize("bold")
    lines = [_draw_row(row, widths, rights) for row in (headers, *rows)]
    _print_as_they_are(target, [blank, lines[0], rule, *lines[1:], blank])


def _draw_row(row: Sequence[Text], widths: Sequence[int], rights: Sequence[bool]) -> Text:
    line = Text("  ")
    for cell, width, is_right in zip(row, widths, rights, strict=True):
        gap = " " * (width - cell.cell_len)
        if is_right:
            line.append(gap)
        line.append_text(cell)
        line.append("   " if is_right else f"{gap}   ")
    line.right_crop(1)
    return line


def _print_as_they_are(target: Console, lines: Sequence[Text]) -> None:
    """Print lines that are no longer than the terminal, or for a program."""
    if lines:
        target.print(Text("\n").join(lines), no_wrap=True, overflow="ignore", crop=False)


def _card(target: Console, columns: Sequence[str], row: Sequence[Text]) -> Iterator[Text]:
    """Yield the lines of one row: its first cells, then the others side by side as far as they fit; empty ones are left
    out."""
    heads = 2 if columns[0].endswith("#") and len(columns) > 1 else 1
    head = Text("  ").join([cell for cell in row[:heads] if cell.plain])
    head.stylize("bold")
    yield from _wrap(target, head, "")
    line = Text()
    for name, cell in zip(columns[heads:], row[heads:], strict=False):
        if cell.plain in ("", "-"):
            continue
        header = name.rstrip("#…")
        part = Text.assemble((f"{header}: " if header else "", "dim"), cell)
        if line and line.cell_len + part.cell_len + 4 > target.width:
            yield from _wrap(target, line, "  ")
            line = Text()
        line = Text.assemble(line, "; ", part) if line else part
    if line:
        yield from _wrap(target, line, "  ")


def _wrap(target: Console, line: Text, indent: str) -> Iterator[Text]:
    """Yield a line in as many as it takes; what follows stands below its text."""
    if line.cell_len + len(indent) <= target.width:
        yield Text(indent) + line
        return
    for each in _fold(target, line, len(indent)):
        yield Text(indent) + each


def _fold(target: Console, text: Text, indent: int) -> list[Text]:
    """Break a text into the lines that it takes beside an indent, between words where that is possible, and in no
    command of ours. No line ends with a blank."""
    width = max(target.width - indent, 1)
    text.plain = join_commands(text.plain, width)
    lines = [*text.wrap(target, width, overflow="fold")]
    for line in lines:
        line.rstrip()
        line.plain = part_commands(line.plain)
    return lines


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on stderr what is being done, and for how long, once it has taken `PATIENCE_S`; only if that is a terminal.

    The line goes away at the end.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # 10 ms

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    bar = Progress(*columns, console=console(error=True), transient=True)
    bar.add_task(printable_text(what), total=None)
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
    width = None if stream.isatty() else _WIDE
    return _Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=not stream.isatty())


class _Console(Console):
    """A console whose reader may go before all is said, as `head` does; rich would end the process with 1."""

    def on_broken_pipe(self) -> None:
        raise  # rich calls this where it handles the `BrokenPipeError`


def agrees(question: str, *, default: bool = False, err: bool = False, left: str = "Nothing was changed.") -> bool:
    """Ask a person yes or no. Where a terminal would break the question within a word, it is broken between two. Raises
    `Abort` where the person leaves with Ctrl-C, and says what holds then (`left`)."""
    said = printable_text(question)
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        width = max(console(error=err).width - len(" [y/N]: "), _LEAST_WRAPPED)
        said = fold(said, width)
    asked, usual = f"{said} {'[Y/n]' if default else '[y/N]'}", "y" if default else "n"
    try:
        answer: bool = click.prompt(asked, default=usual, show_default=False, value_proc=_read_yes, err=err)
    except click.Abort:
        click.echo(f"\n{left}", err=True)
        raise
    return answer


def _read_yes(word: str) -> bool:
    """Read an answer. Raises `UsageError`, behind which the question comes again."""
    if (read := {"y": True, "yes": True, "n": False, "no": False}.get(word.strip().lower())) is None:
        raise click.UsageError(f"expected y or n, found {printable_text(word)[:40]!r}")
    return read


def printable_text(text: str) -> str:
    """Return a text as one line that cannot move the cursor, change colours, hide or reorder anything.

    A text of a server or a client that breaks its line could show a row that is not there.
    """
    if text.isascii() and text.isprintable():
        return text
    return printable(trust_text.clean(text.replace("\x1b", " ")))


def shorten(text: str, most: int) -> str:
    """Return a text, or its beginning where it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


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


def tokens(count: int, *, counted: bool) -> str:
    """Return a number of tokens as text; one that is not counted yet is marked, as `say_estimated` explains."""
    return f"{'' if counted else '~'}{count:,}"


def say_estimated(counted: Iterable[bool]) -> None:
    """Explain the mark of `tokens`, if a number has it. `counted`: whether each was counted."""
    if not all(counted):
        say("~: an estimate; a running proxy and foretool doctor count the tokens.")


def size(count: int) -> str:
    """Write a number of bytes in its largest unit."""
    number = float(count)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def score_parts(parts: Mapping[str, float]) -> str:
    """Write the parts of a score: `lexical +2.50 usage +0.30`."""
    return " ".join(f"{name} {part:+.2f}" for name, part in parts.items())

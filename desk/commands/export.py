"""`foretool export`: writes records as JSON lines, CSV or Parquet, a few at a time."""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final, get_args

import click
import msgspec
from msgspec import Struct

from foretool.server.commands import output
from foretool.server.commands.exit import USAGE, WRONG, complain
from foretool.server.commands.forget import find_principal
from foretool.server.commands.misses import read_duration
from foretool.server.commands.options import config_option
from foretool.server.config.errors import guess
from foretool.server.config.loader import Config, load
from foretool.server.setup.installation import install_command
from foretool.server.system.logs import printable, printable_json
from foretool.storage.episodes import each_episode
from foretool.storage.opening import open_existing_store
from foretool.storage.records import AuditAction, AuditEntry, AuditFilter, Call, Episode, Exposure, Miss
from foretool.storage.store import Store

Rows = Iterable[Mapping[str, Any]]

_ROW_GROUP: Final = 5000
"""Records that are in memory at once while Parquet is written."""
_KNOWN: Final = 10_000
"""Latest entries of the audit log whose names a misspelt one is compared with."""
_FORMULA: Final = re.compile(r"^\s*[=+\-@]|^[\t|%]")
"""A cell that a spreadsheet would compute instead of showing it."""
_FORMULA_WITHIN: Final = re.compile(r"(?<!')([;\t][^\S\t]*)(?=[=+\-@])")
"""What becomes such a cell in a spreadsheet that takes semicolons or tabs for the ends of cells."""
_NARROW: Final = str.maketrans("\uff1d\uff0b\uff0d\uff20", "=+-@")
"""The wide forms of `=`, `+`, `-` and `@`, which spreadsheets of East Asia read as the narrow ones."""

KINDS: Final[Mapping[str, tuple[type[Struct], Callable[[Store, AuditFilter], Iterator[Struct]]]]] = {
    "misses": (Miss, lambda store, wanted: store.exporting.misses(wanted.since, wanted.until)),
    "episodes": (Episode, lambda store, wanted: each_episode(store, wanted.since, wanted.until, time.time())),
    "calls": (Call, lambda store, wanted: store.exporting.calls(wanted.since, wanted.until)),
    "exposures": (Exposure, lambda store, wanted: store.exporting.exposures(wanted.since, wanted.until)),
    "audit": (AuditEntry, lambda store, wanted: store.audit.each(wanted)),
}
"""By the kind of records: their type, and what reads those that are wanted. The audit log alone is chosen from by more
than times."""


@click.command("export")
@click.argument("kind", type=click.Choice(tuple(KINDS)))
@click.option(
    "--format", "form", type=click.Choice(("jsonl", "csv", "parquet")), default="jsonl", show_default=True,
    help="JSON lines, CSV for spreadsheets, or Parquet (needs pyarrow).",
)  # fmt: skip
@click.option("--since", type=read_duration, metavar="TIME", help="Only records of the last 7d, 12h, 30min, ...")
@click.option("--until", type=read_duration, metavar="TIME", help="Only records before the last 7d, 12h, 30min, ...")
@click.option("--who", default="", metavar="NAME", help="Of audit: only this person or token: name, sub or principal.")
@click.option("--action", type=click.Choice(get_args(AuditAction)), help="Of audit: only entries of this kind.")
@click.option("--target", "about", default="", metavar="NAME", help="Of audit: only entries about this tool or server.")
@click.option(
    "--output", "-o", "target", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write to this file, which must not exist.  [default: stdout]",
)  # fmt: skip
@config_option
def command(
    path: Path | None, kind: str, form: str, since: float | None, until: float | None, who: str, action: str | None,
    about: str, target: Path | None,
) -> int:  # fmt: skip
    """Write your records as JSON lines, CSV or Parquet.

    An episode is one task with its calls; an exposure is a list of tools that a client received. Records come as they
    were recorded, the oldest first: without the secrets and arguments that were never written. docs/data.md describes
    every column.

    The audit log has who called what, while the setting "audit" is on, and who decided what, always (docs/fleet.md).

    \b
    foretool export misses --since 30d > misses.jsonl
    foretool export calls --format csv -o calls.csv
    foretool export audit --since 7d --who ann
    """
    if kind != "audit" and (who or action or about):
        return complain("--who, --action and --target choose entries of the audit log: foretool export audit")
    if form == "parquet":
        if not _has_pyarrow():
            return complain(f"--format parquet needs pyarrow: {install_command('parquet')}")
        if target is None and sys.stdout.isatty():
            return complain("--format parquet writes no text: name a file with --output")
    config, (record, read) = load(path), KINDS[kind]
    now = time.time()
    wanted = AuditFilter(
        since=now - since if since is not None else 0.0,
        until=now - until if until is not None else now + 1e9,
        principal=who,
        subject=find_principal(config, who),
        action=action or "",
        target=about,
    )
    if kind == "audit" and not config.settings.audit:
        output.warn('Calls are not kept: set "audit" to true in the block "foretool" of the config.')
    try:
        with open_existing_store(config.storage) as store:
            if unknown := _find_unknown(config, store, who, about):
                return complain(f"export audit: {unknown}", WRONG)
            with _opened(target) as out:
                write = {"jsonl": _write_lines, "csv": _write_csv, "parquet": _write_parquet}[form]
                write(out, record, read(store, wanted))
    except FileExistsError:
        return complain(f"--output: {target} exists; name another file, or remove it first")
    except BrokenPipeError:
        raise  # whoever read has seen enough, which every command takes for no error
    except OSError as error:
        return complain(f"--output: {target or 'stdout'}: {error.strerror}", USAGE)
    return 0


def _find_unknown(config: Config, store: Store, who: str, about: str) -> str:
    """Return which name the audit log and the config do not know, "" if there is none: a typo looks like somebody who
    did nothing."""
    named = AuditFilter(principal=who, subject=find_principal(config, who))
    tokens = {entry.name for entry in config.settings.tokens}
    if who and who not in tokens and not store.audit.find(named, 1):
        meant = guess(who, {*tokens, *(each.name for each in store.audit.find(AuditFilter(), _KNOWN))})
        return f"nobody is called {who!r} in the audit log{meant}"
    if not about or store.audit.find(AuditFilter(target=about), 1):
        return ""
    targets = {*config.prefixes, *store.catalog.exposed_names()}
    if about in targets:
        return ""
    targets.update(each.target for each in store.audit.find(AuditFilter(), _KNOWN))
    return f"no tool or server is called {about!r}{guess(about, targets)}"


@contextmanager
def _opened(target: Path | None) -> Iterator[IO[bytes]]:
    """Open a new file that only its owner can read, or stdout. Raises `OSError`; a file that exists stays as it is."""
    if target is None:
        out = sys.stdout.buffer
        yield out
        out.flush()
        return
    with target.open("xb") as file:
        target.chmod(0o600)
        yield file


def _write_lines(out: IO[bytes], _: type[Struct], records: Iterator[Struct]) -> None:
    encoder = msgspec.json.Encoder()
    for each in records:
        out.write(printable_json(encoder.encode(each)) + b"\n")


def _write_csv(out: IO[bytes], record: type[Struct], records: Iterator[Struct]) -> None:
    fields = record.__struct_fields__
    text = io.TextIOWrapper(out, "utf-8", errors="replace", newline="", write_through=True)
    try:
        writer = csv.writer(text)
        writer.writerow(fields)
        for each in records:
            writer.writerow([safe_cell(getattr(each, field)) for field in fields])
        text.flush()
    finally:
        text.detach()


def safe_cell(value: object) -> object:
    """Return a value as a CSV cell: lists and objects as JSON, and no text that a spreadsheet would run as a formula.

    Such a text gets an apostrophe before it (OWASP, "CSV Injection"). Characters that are not printable become spaces.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = printable(text, keep="\t\n").translate(_NARROW)
    return _FORMULA_WITHIN.sub(r"\1'", f"'{text}" if _FORMULA.match(text) else text)


def _has_pyarrow() -> bool:
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        return False
    return True


def _write_parquet(out: IO[bytes], record: type[Struct], records: Iterator[Struct]) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    schema = _schema(record, arrow)
    with parquet.ParquetWriter(out, schema) as writer:
        for first in records:
            part = [_columns(each) for each in chain((first,), islice(records, _ROW_GROUP - 1))]
            writer.write_table(arrow.Table.from_pylist(part, schema=schema))


def _columns(record: Struct) -> dict[str, Any]:
    """Return a record as Parquet holds it: lists of names as lists, what has no fixed form as JSON."""
    found: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        is_list = isinstance(value, tuple) and all(isinstance(each, str) for each in value)
        is_json = not is_list and isinstance(value, dict | tuple)
        found[name] = msgspec.json.encode(value).decode() if is_json else list(value) if is_list else value
    return found


def _schema(record: type[Struct], pa: Any) -> Any:
    kinds: dict[Any, Any] = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    columns = []
    for field in msgspec.structs.fields(record):
        said = str(field.type)
        if said.startswith("tuple[") and "tuple[int" not in said:
            kind = pa.list_(pa.string())
        else:
            kind = kinds.get(field.type, pa.string())
        columns.append(pa.field(field.name, kind))
    return pa.schema(columns)

"""`foretool learn --export` and `--import`: priors that move from one store to another."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Struct

from foretool.retrieval import portable_priors
from foretool.retrieval.portable_priors import LARGEST, WORTH, NotPriors, PortablePriors
from foretool.server import offline
from foretool.server.app import App
from foretool.server.catalog.imported import IMPORTED, note_of
from foretool.server.commands import edits, output
from foretool.server.commands.exit import USAGE, WRONG, complain
from foretool.server.config.loader import Config
from foretool.storage.opening import open_store, store_exists

_BUSY_MS: Final = 5000
_SHOWN: Final = 8
"""How many tools are named that enter or leave a list."""


class WrittenPriors(Struct, frozen=True):
    """What was written."""

    file: Path
    servers: int
    tools: int
    followed: int
    """Pairs of tools that followed each other."""
    tasks: int
    people: int
    """At least so many people stand behind each count."""
    bytes: int


class PriorsImport(Struct, frozen=True):
    """What an import changes."""

    file: Path
    exported: str
    tools: int
    known: int
    """Tools of the file that a server of yours has."""
    followed: int
    calls: int
    """So many calls the file counts as."""
    enter: tuple[str, ...]
    """Tools that the list of the default profile gains."""
    leave: tuple[str, ...]
    replaces: str
    """The day of the export whose place it takes, or ""."""
    is_done: bool


class UndoneImport(Struct, frozen=True):
    """What was taken back."""

    exported: str
    """The day of the export that no longer counts; "" if none did."""
    serves: str
    """The day of the export that counts again, or ""."""


def write_file(config: Config, file: Path, *, as_json: bool) -> int:
    """Write what was learned into a file that must not exist. Returns the exit status."""
    with offline.open_offline(config) as app:
        from foretool.learning.portable import gather

        priors = gather(app.store, app.catalog, config.settings.share_words, time.time())
    if not priors.tools:
        shared = f" that {priors.people} people use" if priors.people > 1 else ""
        return complain(
            f"learn: no calls of tools{shared} are on record in {config.storage}; `foretool status` says what is",
            WRONG,
        )
    data = portable_priors.encode_priors(priors)
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "wb") as out:
            out.write(data)
    except FileExistsError:
        return complain(f"learn: {file} exists; name another file, or remove it first")
    except OSError as error:
        return complain(f"learn: {file}: {error.strerror}; name another file", USAGE)
    servers = len({tool.server for tool in priors.tools})
    written = WrittenPriors(
        file, servers, len(priors.tools), len(priors.followed), priors.tasks, priors.people, len(data)
    )
    return output.show(written, as_json, _print_written)


def take_over(config: Config, file: Path, *, dry_run: bool, agreed: bool, as_json: bool) -> int:
    """Take over a file, after saying what that changes and asking. Returns the exit status."""
    try:
        priors = portable_priors.decode_priors(read_priors(file))
    except (NotPriors, OSError) as error:
        return complain(f"learn: {file}: {error.strerror or error if isinstance(error, OSError) else error}")
    found = _compare(config, file, priors)
    if not dry_run:
        if not agreed:
            if as_json or not sys.stdin.isatty():
                raise click.UsageError("this changes what is listed: add --yes, or --dry-run to see what changes.")
            _print(found)
            if not click.confirm("Take it over?"):
                output.say("Nothing was changed.")
                return WRONG
        with open_store(config.storage, busy_ms=_BUSY_MS) as store, store.atomic():
            report = msgspec.to_builtins(note_of(priors))
            store.artifacts.add(IMPORTED, msgspec.json.encode(priors), report, promote=True, at=time.time())
            store.artifacts.bump_version()
        found = msgspec.structs.replace(found, is_done=True)
    if as_json or dry_run or agreed:
        output.show(found, as_json, _print)
    if found.is_done and not as_json:
        output.say(f"Taken over; to take it back: {edits.typed('learn --undo-import', config.path)}")
    return 0


def read_priors(file: Path) -> bytes:
    """Read a file that somebody else may have made. Raises `NotPriors` and `OSError`."""
    # A link may point anywhere, and opening a pipe would wait for who writes into it.
    opened = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(opened, "rb") as source:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise NotPriors("expected a file, found something else; copy the priors into a file")
        data = source.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise NotPriors(f"has over {output.size(LARGEST)}, more than priors take; export it again")
    return data


def _compare(config: Config, file: Path, priors: PortablePriors) -> PriorsImport:
    """Return what the list of the default profile gains and loses."""
    with offline.open_offline(config) as app:
        app.known.imported.refresh()
        before = frozenset(_list(app, config))
        active = app.store.artifacts.active(IMPORTED)
        app.known.imported.use(priors, time.time())
        after = frozenset(_list(app, config))
        expected = app.known.imported.expected
    return PriorsImport(
        file, priors.exported, len(priors.tools), expected.known, len(priors.followed), sum(expected.calls.values()),
        tuple(sorted(after - before)), tuple(sorted(before - after)),
        str(active.report.get("exported", "")) if active else "", False,
    )  # fmt: skip


def _list(app: App, config: Config) -> tuple[str, ...]:
    profile = config.profiles[""]
    return app.lists.try_out(profile, "frozen" if profile.policy == "auto" else profile.policy).tools


def undo_import(config: Config, *, as_json: bool) -> int:
    """Take the last import back; the one before it counts again. Returns the exit status."""
    if not store_exists(config.storage):
        return complain(f"learn: {config.storage} does not exist; nothing was imported", WRONG)
    with open_store(config.storage, busy_ms=_BUSY_MS) as store:
        done = store.artifacts.roll_back(IMPORTED)
    if done is None:
        return complain("learn: nothing that was imported counts; there is nothing to take back", WRONG)
    away, back = done
    undone = UndoneImport(str(away.report.get("exported", "")), str(back.report.get("exported", "")) if back else "")
    return output.show(undone, as_json, _print_undone)


def _print_undone(undone: UndoneImport) -> None:
    again = f"; those of {undone.serves} count again" if undone.serves else ""
    output.say(f"The priors of {undone.exported} no longer count{again}.")


def _print(found: PriorsImport) -> None:
    output.say(f"{found.file}: exported {found.exported}, {output.plural(found.tools, 'tool')},"
               f" {output.plural(found.followed, 'pair')} of tools.")  # fmt: skip
    if found.known == found.tools:
        output.say("All its tools are known here.")
    else:
        output.say(f"{found.known} of its tools are known here; others count once a server of yours lists them.")
    if found.known:
        calls = output.plural(found.calls, "call")
        output.say(f"They count as {calls} ({WORTH} at most), and less as yours are added.")
    for verb, tools in (("gains", found.enter), ("loses", found.leave)):
        if tools:
            more = f" and {len(tools) - _SHOWN} more" if len(tools) > _SHOWN else ""
            output.say(f"The list {verb} {', '.join(tools[:_SHOWN])}{more}.")
    if not found.enter and not found.leave:
        output.say("The list stays as it is.")
    if found.replaces:
        output.say(f"The priors of {found.replaces}, which were imported before, no longer count.")


def _print_written(written: WrittenPriors) -> None:
    tools = f"{output.plural(written.tools, 'tool')} of {output.plural(written.servers, 'server')}"
    pairs = output.plural(written.followed, "pair")
    output.say(f"{written.file}: {tools} and {pairs} of tools, counted in {output.plural(written.tasks, 'task')}.")
    if written.people > 1:
        output.say(f"Each was used by at least {written.people} people.")
    output.say(f"It has no texts and no arguments. Elsewhere: foretool learn --import {written.file.name}")

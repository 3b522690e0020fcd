"""`foretool import-priors`: takes over what another store has learned, or takes that back."""

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
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import Config, load
from foretool.storage.opening import open_store, store_exists

BUSY_MS: Final = 5000
SHOWN: Final = 8
"""How many tools are named that enter or leave a list."""


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


@click.command("import-priors")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--undo", is_flag=True, help="Take the last import back; the one before it counts again.")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@config_option
@json_option
def command(path: Path | None, file: Path | None, undo: bool, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Take over what another store has learned, from a FILE.

    `foretool export-priors` writes such a file. Says what it changes and asks first. The file counts as 100 calls at
    most: it decides which tools are listed and what comes next while little is on record here, and fades as your own
    calls are added. One file counts at a time; a running proxy takes it up within seconds.

    \b
    foretool import-priors team.json
    foretool import-priors --undo
    """
    if undo == (file is not None):
        raise click.UsageError("name one FILE of `foretool export-priors`, or --undo.")
    config = load(path)
    if file is None:
        return _undo(config, as_json)
    try:
        priors = portable_priors.read(read_file(file))
    except (NotPriors, OSError) as error:
        return complain(f"import-priors: {file}: {error.strerror or error if isinstance(error, OSError) else error}")
    found = _compare(config, file, priors)
    if not dry_run:
        if not yes:
            if as_json or not sys.stdin.isatty():
                raise click.UsageError("this changes what is listed: add --yes, or --dry-run to see what changes.")
            _print(found)
            if not click.confirm("Take it over?"):
                output.say("Nothing was changed.")
                return WRONG
        with open_store(config.storage, busy_ms=BUSY_MS) as store, store.atomic():
            report = msgspec.to_builtins(note_of(priors))
            store.artifacts.add(IMPORTED, msgspec.json.encode(priors), report, promote=True, at=time.time())
            store.artifacts.bump_version()
        found = msgspec.structs.replace(found, is_done=True)
    if as_json or dry_run or yes:
        output.show(found, as_json, _print)
    if found.is_done and not as_json:
        output.say(f"Taken over; to take it back: {edits.typed('import-priors --undo', config.path)}")
    return 0


def read_file(file: Path) -> bytes:
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
    with offline.read(config) as app:
        app.imported.refresh()
        before = frozenset(_list(app, config))
        active = app.store.artifacts.active(IMPORTED)
        app.imported.use(priors, time.time())
        after = frozenset(_list(app, config))
        expected = app.imported.expected
    return PriorsImport(
        file, priors.exported, len(priors.tools), expected.known, len(priors.followed), sum(expected.calls.values()),
        tuple(sorted(after - before)), tuple(sorted(before - after)),
        str(active.report.get("exported", "")) if active else "", False,
    )  # fmt: skip


def _list(app: App, config: Config) -> tuple[str, ...]:
    profile = config.profiles[""]
    return app.lists.try_out(profile, "frozen" if profile.policy == "auto" else profile.policy).tools


def _undo(config: Config, as_json: bool) -> int:
    if not store_exists(config.storage):
        return complain(f"import-priors: {config.storage} does not exist; nothing was imported", WRONG)
    with open_store(config.storage, busy_ms=BUSY_MS) as store:
        done = store.artifacts.roll_back(IMPORTED)
    if done is None:
        return complain("import-priors: nothing that was imported counts; there is nothing to take back", WRONG)
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
            more = f" and {len(tools) - SHOWN} more" if len(tools) > SHOWN else ""
            output.say(f"The list {verb} {', '.join(tools[:SHOWN])}{more}.")
    if not found.enter and not found.leave:
        output.say("The list stays as it is.")
    if found.replaces:
        output.say(f"The priors of {found.replaces}, which were imported before, no longer count.")

"""What the commands share that edit our config file: read it, show what changes, keep a copy, write, take back."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import click
from click import ClickException

from foretool.server.commands import edits, output
from foretool.server.commands.options import UnknownName, config_option, json_option
from foretool.server.commands.running import tell_who_serves_on
from foretool.server.config.codes import Code
from foretool.server.config.errors import ConfigError, guess, split_place
from foretool.server.config.files import find_place, read_regular
from foretool.server.config.loader import Config, load, missing_file, parse
from foretool.server.setup import changes
from foretool.server.setup.changes import NothingToUndoError
from foretool.server.setup.documents import DocumentError
from foretool.server.setup.masking import mask_text
from foretool.server.setup.own_servers import (
    OwnServers,
    bring_back,
    changed_names,
    copies_of,
    is_damaged,
    is_damaged_text,
    last_good,
    latest_command,
    read_own_servers,
    save_edit,
)

SHOWN: Final = 8
"""Names of servers that one message lists."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
undo_option = click.option(
    "--undo", "wanted_undo", is_flag=True, help="Take back the latest change of the config by this command."
)


def open_file(path: Path | None, *, may_be_missing: bool = False) -> OwnServers:
    """Read our config file. `path` is that of `--config`. Raises `ConfigError` and `ClickException`."""
    place = find_place(path, os.environ)
    with errors_of(place.path):
        own = read_own_servers(place.path)
    if own.before is None and not may_be_missing:
        raise missing_file(place)
    return own


@contextmanager
def errors_of(place: Path) -> Iterator[None]:
    """Turn errors of reading and editing our config file into errors of one line. Raises `ConfigError` as every command
    does that reads the file, and `ClickException`."""
    try:
        yield
    except (OSError, DocumentError) as error:
        load(place)
        said = f"cannot be read ({error.strerror}); check its permissions" if isinstance(error, OSError) else str(error)
        raise ClickException(f"{place}: {said}") from None


def differing_lines(own: OwnServers) -> list[str]:
    """Return the lines that change, with `+` and `-`, and the lines that open their entries, without any secret."""
    return _diff((own.before or b"").decode(), own.text())


def _diff(before: str, after: str) -> list[str]:
    return changed_lines(mask_text(before), mask_text(after))


def changed_lines(before: str, after: str) -> list[str]:
    """Return the lines that change, with `+` and `-`, each below the line that opens the entry in which it stands."""
    old, new = before.splitlines(), after.splitlines()
    found: list[str] = []
    opened = ""
    for tag, start, end, begin, stop in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        changed = [*old[start:end], *new[begin:stop]]
        above = _opening_line(new[:begin], min(map(_indent, changed)))
        if above not in ("", opened):
            found.append(f" {above}")
        opened = above
        found += [f"-{line}" for line in old[start:end]] + [f"+{line}" for line in new[begin:stop]]
    return found


def _opening_line(lines: Sequence[str], indent: int) -> str:
    """Return the line that opens the server, or else the outermost entry, in which a line so far indented stands; "" if
    it opens one itself."""
    header = next((each for each in reversed(lines) if re.match(r"\[.+\]$", each)), "")
    around: list[str] = []
    for line in reversed(lines):
        if line.strip() and _indent(line) < indent:
            indent = _indent(line)
            around.insert(0, line)
    names = [re.sub(r"\W", "", line) for line in around]
    servers = next((place for place, name in enumerate(names) if name in ("mcpServers", "servers")), None)
    if servers is not None:
        around, names = around[servers + 1 :], names[servers + 1 :]
    # TOML indents nothing, and has a line in brackets above.
    return next((line for line, name in zip(around, names, strict=True) if name), header)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def show_lines(lines: list[str]) -> None:
    """Print lines of a difference."""
    for line in lines:
        output.say(f"  {line}", {"+": "green", "-": "red"}.get(line[:1], "dim"))


def finish_edit(own: OwnServers, why: str, command: str, *, dry_run: bool, as_json: bool) -> int:
    """Show what an edit changes, write it, and say how to take it back. Returns the exit status."""
    lines = differing_lines(own)
    kept = None if dry_run else save_edit(own, why, command)
    if as_json:
        output.emit(edit_report(own, why, lines, kept))
    elif not lines:
        output.say(f"Nothing has to change in {short(own.path)}.")
    else:
        output.say(f"{short(own.path)}{' would change' if dry_run else ''}: {why}", "bold")
        show_lines(lines)
        say_undo(command, own.path, dry_run=dry_run)
    return 0


def config_after(own: OwnServers, config: Config) -> Config:
    """Return the config as the edited file has it, with the storage file that is in use."""
    new = parse(own.text().encode(), own.path)
    return new if new.storage == config.storage else config


def edit_report(own: OwnServers, why: str, lines: list[str], kept: Path | None) -> dict[str, object]:
    """Return an edit as `--json` prints it."""
    return {
        "config": str(own.path),
        "what": why if lines else "",
        "lines": lines,
        "backup": str(kept) if kept else None,
    }


def typed(command: str, place: Path) -> str:
    """Return a command line of ours that acts on this config, whichever it finds by itself."""
    try:
        is_found = find_place(None, os.environ).path == place
    except ConfigError:
        is_found = False
    return f"foretool {command}{'' if is_found else f' --config {shlex.quote(str(place))}'}"


def say_undo(command: str, place: Path, *, dry_run: bool) -> None:
    """Say how a change is taken back, and when it holds."""
    if dry_run:
        output.say("Nothing was written.")
    else:
        output.say("Running proxies take this up by themselves.")
        output.say(f"To take it back: {typed(f'{command} --undo', place)}")


def explain_refused_config(error: ConfigError) -> list[str]:
    """Say in one line why the config cannot be used and what to do, and in one more which proxy serves without it."""
    back = way_back(Path(split_place(str(error)).file)) if error.code == Code.CONFIG_SYNTAX else ""
    return [f"{error}{back} [{error.code}]", *tell_who_serves_on(error)]


def way_back(place: Path) -> str:
    """Return the end of an error message: how a kept copy repairs a damaged config file; "" without a copy."""
    if not is_damaged(place) or (good := last_good(place)) is None:
        return ""
    undo = typed("doctor --undo", place)
    return f", or bring back the version of {good[0]}, without what was edited by hand since then: {undo}"


def _bring_back(place: Path, as_json: bool, *, dry_run: bool) -> int:
    """Write the newest good version in place of a damaged file, unless this is a trial. Returns the exit status."""
    good = last_good(place)
    if good is None:
        raise ClickException(f"{place}: it is damaged and no earlier version is kept; correct it by hand")
    said = f"{short(place)} is damaged and would be the version of {good[0]} again, without what was edited since then."
    said += " Nothing was written."
    if not dry_run:
        with errors_of(place):
            kept = bring_back(place, good[1])
        said = f"{short(place)} was damaged and is the version of {good[0]} again."
        said += f"\nThe damaged file is kept in {short(kept)}: what was edited by hand after {good[0]} is in it alone."
    if as_json:
        output.emit({"restored": [str(place)], "problems": []})
    else:
        output.say_lines(said)
    return 0


def undo_latest(
    path: Path | None, as_json: bool, command: str, names: Sequence[str] = (), *, dry_run: bool, agreed: bool = False
) -> int:
    """Put the file back as it was before the latest edit, or from the newest good copy if it is damaged; refuse if that
    edit was not one of these names, or without names not one of this command. With `dry_run`, only show what that would
    change. A damaged version comes back only after a yes, or if `agreed`. Returns the exit status."""
    place = find_place(path, os.environ).path
    if is_damaged(place):
        return _bring_back(place, as_json, dry_run=dry_run)
    if names:
        _refuse_other_names(place, names)
    else:
        _refuse_other_command(place, command)
    before = read_text(place)
    try:
        undone = changes.undo(copies_of(place), dry_run=True)
        becomes = undone.becomes.get(place)
        if becomes is not None and is_damaged_text(place, becomes):
            _confirm_damage(place, command, agreed=agreed, dry_run=dry_run, as_json=as_json)
        if not dry_run:
            undone = changes.undo(copies_of(place))
    except NothingToUndoError:
        raise ClickException(f"{place}: no earlier version is kept, so there is nothing to take back") from None
    if as_json:
        output.emit({"restored": [str(each) for each in undone.restored], "problems": undone.problems})
    for each in () if as_json else undone.restored:
        output.say(f"{short(each)} {'would be' if dry_run else 'is'} as it was before the latest change:")
        show_lines(_diff(before, undone.becomes.get(place, b"").decode("utf-8", "replace")))
    for problem in () if as_json else undone.problems:
        output.say(problem, "yellow")
    if becomes is not None and (problem := _why_unusable(place, becomes)):
        output.warn(f"{'It could not be used then' if dry_run else 'The config cannot be used'}: {problem}")
    return int(bool(undone.problems))


def _confirm_damage(place: Path, command: str, *, agreed: bool, dry_run: bool, as_json: bool) -> None:
    """Ask before a damaged version of the file comes back. Raises `ClickException` without a yes."""
    said = f"{short(place)} was damaged before the latest change, and taking that back brings back the damaged file"
    if agreed or dry_run:
        output.warn(f"{said}.")
    elif as_json or not sys.stdin.isatty():
        do = typed(f"{command} --undo --yes", place) if command == "doctor" else "run this in a terminal, which asks"
        raise ClickException(f"{said}; nothing was changed. To do it all the same: {do}")
    else:
        output.warn(f"{said}.")
        if not output.agrees("Bring back the damaged file?", err=True):
            raise ClickException("nothing was changed")


def _why_unusable(place: Path, text: bytes) -> str:
    """Return why foretool cannot start with a version of its config, "" if it can."""
    try:
        parse(text, place)
    except ConfigError as error:
        return str(error)
    return ""


def _refuse_other_names(place: Path, names: Sequence[str]) -> None:
    """Refuse to take back an edit that did not change what the user names. Raises `UsageError`."""
    changed = changed_names(place)
    if changed and (other := next((name for name in names if name not in changed), "")):
        what = ", ".join(sorted(changed))
        raise click.UsageError(
            f"the latest change was one of {what}, not of {other!r}; --undo without a name takes that back"
        )


def _refuse_other_command(place: Path, command: str) -> None:
    """Refuse to take back what another command has changed. Raises `UsageError`."""
    made = latest_command(place)
    if made not in ("", command):
        raise click.UsageError(
            f"the latest change was one of foretool {made}, which {typed(f'{made} --undo', place)} takes back"
        )


def read_text(place: Path) -> str:
    """Return what a file holds, "" where it cannot be read."""
    try:
        return read_regular(place).decode("utf-8", "replace")
    except OSError:
        return ""


def require_names(own: OwnServers, names: tuple[str, ...]) -> None:
    """Refuse a name that no server has. Raises `UsageError` without a name, and `UnknownName`."""
    if not names:
        raise click.UsageError("name at least one server, or add --undo")
    known = own.servers()
    for name in names:
        if name not in known:
            is_short = len(known) <= SHOWN
            listed = f"it has: {', '.join(known) or 'none'}" if is_short else f"foretool list shows its {len(known)}"
            raise UnknownName(f"{short(own.path)} has no server {name!r}{guess(name, known) or f'; {listed}'}")


def short(path: Path) -> str:
    """Write a path with `~` in place of the home folder."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)


def _edits(
    name: str, edit: Callable[[OwnServers, str], None], done: str
) -> Callable[[Callable[[], None]], click.Command]:
    """Make a command of a function whose docstring is its help. `done`: what became of the servers, in one word."""

    def decorate(described: Callable[[], None]) -> click.Command:
        @click.argument("names", nargs=-1, metavar="NAME...")
        @edits.dry_run_option
        @edits.undo_option
        @config_option
        @json_option
        def run(path: Path | None, as_json: bool, names: tuple[str, ...], dry_run: bool, wanted_undo: bool) -> int:
            if wanted_undo:
                return edits.undo_latest(path, as_json, name, names, dry_run=dry_run)
            own = edits.open_file(path)
            edits.require_names(own, names)
            with edits.errors_of(own.path):
                for each in names:
                    edit(own, each)
            return edits.finish_edit(own, f"{', '.join(names)} {done}", name, dry_run=dry_run, as_json=as_json)

        return click.command(name, help=described.__doc__)(run)

    return decorate


@_edits("remove", OwnServers.remove_server, "removed")
def remove() -> None:
    """Take servers out of the config.

    What is on record of their tools stays; `foretool forget` deletes it. To keep the entry, use `foretool disable`.
    """


@_edits("enable", partial(OwnServers.switch, on=True), "enabled")
def enable() -> None:
    """Switch servers on that are disabled.

    Their entries lose "disabled". Running proxies start them at once.
    """


@_edits("disable", partial(OwnServers.switch, on=False), "disabled")
def disable() -> None:
    """Switch servers off without deleting their entries.

    Their entries get "disabled": true. Running proxies stop them at once.
    """

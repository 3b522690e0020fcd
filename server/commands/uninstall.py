"""`foretool uninstall`: takes foretool out of the clients, gives them their servers back, and goes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click
from click import ClickException

from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config import keyrings
from foretool.server.config.errors import ConfigError
from foretool.server.config.files import find_place, own_file
from foretool.server.config.keyrings import KeyringError
from foretool.server.config.loader import load, parse
from foretool.server.local.opening import forget_answers
from foretool.server.setup import changes, client_hooks, leaving
from foretool.server.setup.changes import FileChange
from foretool.server.setup.client_hooks import SHELL_HOOKS
from foretool.server.setup.clients import client_files, this_machine
from foretool.server.setup.documents import DocumentError
from foretool.server.setup.installation import Command, measure_folder, this_installation
from foretool.server.setup.scan import scan
from foretool.storage.places import ServerAddress, StorePlace, local_file, local_folder, made_folder


@click.command("uninstall")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", "-y", "agreed", is_flag=True, help="Ask nothing: change the clients and run the commands.")
@config_option
@json_option
def command(path: Path | None, as_json: bool, dry_run: bool, agreed: bool) -> int:
    """Give your clients their servers back, and uninstall foretool.

    A client's file that nobody has edited since `foretool init` becomes what it was, byte for byte. Any other one loses
    foretool alone, gets its servers back, and keeps your edits. Your config and your records stay; it says where they
    are, and which of your servers no client will have.
    """
    place = find_place(path, os.environ).path
    planned, problems, left = _plan(place)
    installed = this_installation()
    if as_json:
        told = [{"path": str(each.path), "why": each.whole_why} for each in planned]
        output.emit({"changes": told, "problems": problems, "in_no_client": left, "data": _data(place),
                     "installation": installed})  # fmt: skip
        return 0
    for each in planned:
        output.say_paragraph(f"{edits.short(each.path)} {each.whole_why}".replace(f"{Path.home()}/", "~/"), "", "  ")
    for problem in problems:
        output.say(f"Not changed: {problem}", "yellow")
    _say_left(left, place)
    if not planned:
        output.say("No client has foretool.")
    elif not dry_run and not _change(planned, place, agreed=agreed):
        return WRONG
    made = _made(place)
    if agreed_now := not dry_run and (agreed or bool(planned)):
        _delete_made(made)
    elif made is not None:
        output.say(f"Goes too: {_describe_made(made)}.")
    for folder, what in _data(place).items():
        is_folder = Path(folder).is_dir()
        kept = f"{what}, {output.size(_measure_kept(Path(folder), made))}" if is_folder else what
        output.say_paragraph(f"Stays: {folder} ({kept}).", "", "  ")
        if Path(folder).exists():
            output.say(f"  To delete it: rm {'-r ' if is_folder else ''}{shlex.quote(folder)}")
    output.say("\nTo uninstall the program:", "bold")
    before = None if agreed_now else partial(_delete_made, made)
    return run_commands(installed.uninstall, before, agreed=agreed, dry_run=dry_run)


def _say_left(names: list[str], place: Path) -> None:
    """Say which servers only our own file has, or has as they are there."""
    if names:
        more = f" and {len(names) - edits.SHOWN} more" if len(names) > edits.SHOWN else ""
        shown = f"{', '.join(names[: edits.SHOWN])}{more}"
        them, stay = ("it", "it stays") if len(names) == 1 else ("them", "they stay")
        said = f"No client will have {shown} as {edits.short(place)} has {them}: {stay} there alone."
        output.say_paragraph(said, "", "  ", "yellow")


def _plan(place: Path) -> tuple[list[FileChange], list[str], list[str]]:
    """Return what changes, a line for each file that cannot be changed, and the servers that no client will have."""
    own = edits.open_file(place, may_be_missing=True).servers()
    found = scan(client_files(this_machine()))
    try:
        own = {name: keyrings.with_values(entry, os.environ) for name, entry in own.items()}
    except KeyringError as error:
        raise ClickException(f"{place}: a value of the keyring cannot be read: {error}") from None
    backups = place.parent / changes.FOLDER
    planned, problems = leaving.plan_leaving(found, backups, own)
    planned = [leaving.as_before(each, backups) for each in _with_hooks(planned, problems, backups)]
    return planned, problems, leaving.in_no_client(found, planned, own)


def _with_hooks(planned: list[FileChange], problems: list[str], backups: Path) -> list[FileChange]:
    """Return the changes, and those that take our hooks out of each client."""
    by_path = {each.path: each for each in planned}
    for hook in (*client_hooks.HOOKS.values(), *SHELL_HOOKS.values()):
        file = Path(hook.file).expanduser()
        if file in by_path and by_path[file].is_gone:
            continue
        try:
            before = leaving.text_before_hooks(file, backups)
            if change := client_hooks.change(hook, file, "", by_path.get(file), before):
                by_path[file] = change
        except (DocumentError, OSError) as error:
            problems.append(f"{file}: {error}")
    return list(by_path.values())


def _change(planned: list[FileChange], place: Path, *, agreed: bool) -> bool:
    """Write the changes after a yes; return whether they were written. Raises `ChangeError`."""
    if not agreed and not sys.stdin.isatty():
        output.say("Nothing was changed: there is nobody to ask. Add --yes.")
        return False
    if not agreed and not output.agrees("Change these files? Each is copied first."):
        output.say("Nothing was changed.")
        return False
    kept = changes.write_changes(planned, place.parent / changes.FOLDER, what=changes.UNINSTALL)
    output.say(f"Done. Restart these clients. Their files with foretool are kept in {edits.short(kept)}.")
    return True


def _made(place: Path) -> Path | None:
    """Return the folder of the files that foretool has made of installed packages, which it makes again when it needs
    them; None if there is none, or if it lies beside a store in a folder of the user."""
    storage = _storage(place)
    folder = made_folder(storage) if storage is not None else None
    if storage is None or folder is None or folder.parent != _store_folder(storage, place):
        return None
    return folder if folder.is_dir() else None


def _describe_made(folder: Path) -> str:
    return f"{edits.short(folder)} ({output.size(measure_folder(folder))}, made for this machine)"


def _delete_made(folder: Path | None) -> None:
    """Delete what foretool has made for this machine, and what it has kept of answers."""
    if folder is not None:
        what = _describe_made(folder)
        shutil.rmtree(folder, ignore_errors=True)
        output.say(f"{'Not deleted' if folder.exists() else 'Deleted'}: {what}.")
    forget_answers()


def _measure_kept(folder: Path, made: Path | None) -> int:
    """Return the bytes of a folder without those that go."""
    goes = measure_folder(made) if made is not None and made.is_relative_to(folder) else 0
    return measure_folder(folder) - goes


def _data(place: Path) -> dict[str, str]:
    """Return the folders, files and databases that hold the user's data, and what they hold."""
    what = "your config and copies of the files that foretool changed, with the secrets of your servers"
    found = _own_folder(own_file(os.environ).parent, (place, place.parent / changes.FOLDER), what)
    storage = _storage(place)
    if storage is None:
        return found
    recorded = "what foretool recorded and learned"
    if isinstance(storage, ServerAddress):
        found[str(storage)] = f"{recorded}; others may use it too"
        recorded = "what belongs to that database on this machine"
    if (file := local_file(storage)) is not None:
        files = [file, *(file.with_name(f"{file.name}-{end}") for end in ("wal", "shm"))]
        found = {**_own_folder(_store_folder(storage, place), files, recorded), **found}
    return dict(sorted(found.items(), key=lambda each: each[1] != what))


def _own_folder(ours: Path | None, files: Sequence[Path], what: str) -> dict[str, str]:
    """Return the folder of these files where it is foretool's own, or else the files: others of the user lie beside
    them. What does not exist is left out."""
    kept = [ours] if ours == files[0].parent else files
    return {str(each): what for each in kept if each is not None and each.exists()}


def _storage(place: Path) -> StorePlace | None:
    """Return where the records are, as a config says, or the place without one, which `foretool init --undo` deletes;
    None if the config cannot be read."""
    try:
        return load(place).storage if place.exists() else _default_storage(place)
    except ConfigError:
        return None


def _store_folder(storage: StorePlace, place: Path) -> Path | None:
    """Return the folder in which only foretool's files are: that of a database, or the default one of a file."""
    return local_folder(storage if isinstance(storage, ServerAddress) else _default_storage(place))


def _default_storage(place: Path) -> StorePlace:
    return parse(b'{"mcpServers": {}}', place).storage


def run_commands(commands: Sequence[Command], before: Callable[[], None] | None, *, agreed: bool, dry_run: bool) -> int:
    """Show commands and run them in order after a yes; stop at the first that fails. `before`: what the same yes does
    first. Returns the exit status."""
    for each in commands:
        click.echo(f"  {shlex.join(each)}")
    if dry_run or not (agreed or sys.stdin.isatty()):
        output.say("Nothing was run." if dry_run else "Nothing was run: there is nobody to ask. Run it, or add --yes.")
        return 0
    if not agreed and not output.agrees("Run this?", left="Nothing was run."):
        output.say("Nothing was run.")
        return WRONG
    if before is not None:
        before()
    for each in commands:
        try:
            done = subprocess.run(each, check=False)
        except OSError as error:
            return complain(f"{each[0]}: cannot be started ({error.strerror}); run the command by hand", WRONG)
        if done.returncode:
            return complain(f"{shlex.join(each)}: ended with status {done.returncode}; see above", WRONG)
    return 0

"""`foretool init`: takes the servers of all clients over into one file, and registers foretool in their place."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import click
from click import ClickException, UsageError
from msgspec.structs import replace

from foretool.server.checks.clients import find_registered
from foretool.server.checks.programs import find_lack
from foretool.server.commands import doctor, edits, hint, output
from foretool.server.commands.options import UnknownName, config_option, json_option, type_again
from foretool.server.config import keyrings
from foretool.server.config.errors import ConfigError, guess, lacks_folder, split_place
from foretool.server.config.files import find_place, read_regular
from foretool.server.config.keyrings import KeyringError
from foretool.server.config.loader import load, parse
from foretool.server.config.variables import Secrets
from foretool.server.diagnosis import Diagnosis
from foretool.server.setup import changes, client_hooks, leaving
from foretool.server.setup.changes import FileChange
from foretool.server.setup.client_hooks import HOOKS, SHELL_HOOKS, ClientHook
from foretool.server.setup.clients import KINDS, ClientFile, Machine, client_files, proxy_file, this_machine
from foretool.server.setup.documents import DocumentError, open_document
from foretool.server.setup.masking import describe_entry, describe_variables
from foretool.server.setup.merge import Merged, Origin, merge_servers
from foretool.server.setup.own_servers import OwnServers, read_own_servers
from foretool.server.setup.plan import plan, profile_after, secrets_of
from foretool.server.setup.scan import FoundFile, scan
from foretool.server.setup.secrets import Moved, Place, move_secrets
from foretool.storage.engine import StorageError

_SHOWN: Final = 6
"""How many names of servers one client shows."""
_MOST_FILES: Final = 3
"""So many files of clients are named once more with what changes in them; more are counted."""


@click.command("init")
@click.option(
    "--client", "clients", multiple=True, metavar="NAME", help="Only this client; may be given several times."
)
@click.option(
    "--from", "sources", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Also read the servers of another proxy's config, and leave that file as it is.",
)  # fmt: skip
@click.option("--project", "with_project", is_flag=True, help="Also read the servers of the working folder's project.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--yes", "-y", "agreed", is_flag=True,
    help="Ask nothing: change the files, and add the prompt hook at the first set-up (unless --no-hook).",
)  # fmt: skip
@click.option("--undo", "wanted_undo", is_flag=True, help="Put every file back as it was before the latest init.")
@click.option(
    "--hook/--no-hook", "wants_hook", default=None,
    help="Add the prompt hook to clients that have hooks, or do not.  [default: add it at the first set-up]",
)  # fmt: skip
@click.option(
    "--shell-hook/--no-shell-hook", "wants_shell_hook", default=None,
    help="Add the hook that reports which programs the shell ran, or do not.",
)  # fmt: skip
@click.option(
    "--profiles", "with_profiles", is_flag=True,
    help="Let each client, and each project, keep to the servers that it had: each gets a profile.",
)  # fmt: skip
@click.option(
    "--secrets", "place", type=click.Choice(["keep", "keyring", "env"]), default="keep", show_default=True,
    help="Where secrets of servers are: as they are, in the keyring, or in variables that this shell has.",
)  # fmt: skip
@click.option("--no-start", is_flag=True, help="Do not start the servers once at the end.")
@click.option("--diff", "with_lines", is_flag=True, help="Show each line of the files that changes.")
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, clients: tuple[str, ...], sources: tuple[Path, ...], with_project: bool,
    dry_run: bool, agreed: bool, wanted_undo: bool, wants_hook: bool | None, wants_shell_hook: bool | None,
    with_profiles: bool, place: Place, no_start: bool, with_lines: bool,
) -> int:  # fmt: skip
    """Set everything up: one file for the servers of all your clients.

    Finds the config files of your MCP clients, copies their servers into foretool's own file, and registers foretool
    in each client in place of them. Shows every change before it makes one, and keeps a copy of each file that it
    changes. Then starts every server once and says what is wrong with which.
    """
    own_path = find_place(path, os.environ).path
    backups = own_path.parent / changes.FOLDER
    if wanted_undo:
        _require_none(*clients, *sources, with_project, with_profiles)
        return _undo(own_path, backups, as_json, dry_run=dry_run)
    machine = this_machine()
    files_of = _choose(machine, clients)
    can_ask = sys.stdin.isatty() and not as_json
    if not (agreed or dry_run or can_ask):
        raise UsageError("there is nobody to ask: add --yes to change the files, or --dry-run to see what would change")
    asks = can_ask and not agreed and not dry_run
    _require_keyring(place)
    files = [*scan(each for each in files_of if with_project or each.scope == "user"), *_read_sources(sources)]
    try:
        own = read_own_servers(own_path)
        merge = partial(_merge, files, own, place)
        merged, secrets, moved = merge(with_profiles=with_profiles)
        if not as_json:
            _show_found(files, merged, own_path, with_profiles=with_profiles)
            _mention_project(() if with_project else files_of)
        if not with_profiles and asks and _wants_profiles(files, merged):
            with_profiles, together = True, merged
            merged, secrets, moved = merge(with_profiles=True)
            _show_apart(files, together, merged, own_path)
        launch = [*hint.launcher(), "serve", "--config", str(own_path)]
        planned, problems = plan(own, merged, files, launch, with_profiles=with_profiles)
    except OSError as error:
        raise ClickException(f"{own_path}: cannot be read ({error.strerror}); check its permissions") from None
    except (DocumentError, UnicodeDecodeError) as error:
        back = edits.way_back(own_path)
        raise ClickException(f"{own_path}:{error}; correct the file first{back}") from None
    if not files and not own.servers():
        planned = []  # a file without servers is of no use to anybody
    add = partial(_with_hooks, files=files, config=own_path, with_profiles=with_profiles)
    unhooked: list[str] = []
    planned = _add_hooks(planned, add, wants_hook, wants_shell_hook, unhooked, asks=asks)
    problems = [*problems, *dict.fromkeys(each for each in unhooked if each not in problems)]
    if not as_json:
        _show_planned(files, planned, problems, own_path)
        _say_recorded(planned if wants_hook is None and not asks else ())
        _show_differences(planned if with_lines else (), secrets)
        _say_unready(planned, own_path, merged)
        if planned and dry_run:
            _say_dry(with_lines=with_lines)
    if not planned or dry_run:
        return _end(as_json, files, merged, planned, problems, None, None)
    if not agreed and not output.agrees("Change these files? Each is copied first."):
        output.say("Nothing was changed.")
        return 1
    kept = _apply(planned, moved, own_path, as_json)
    diagnosis = None if no_start else _start(path, own_path, as_json, may_ask=not agreed)
    return _end(as_json, files, merged, planned, problems, kept, diagnosis)


def _require_none(*given: object) -> None:
    """Refuse options that choose what is set up where everything is put back."""
    if any(given):
        raise UsageError("--undo puts back every file of the latest init; only --dry-run and --json go with it")


def _merge(
    files: Sequence[FoundFile], own: OwnServers, place: Place, *, with_profiles: bool
) -> tuple[Merged, Secrets, Moved]:
    """Merge the servers of all clients; return them, the values that no output shows, and what was moved out of them.

    With profiles, also those that our file has already, no server stands for two that differ: it would give each client
    what the other one had.
    """
    keeps_apart = with_profiles or bool(own.value(("foretool", "profiles")))
    merged = merge_servers(files, own.servers(), str(own.path), keeps_apart=keeps_apart)
    if with_profiles:
        merged.notes += _say_in_no_profile(merged, own.path)
    secrets = _secrets(files, merged)  # a moved one stands in the old text still
    return merged, secrets, _move(merged, place)


def _say_in_no_profile(merged: Merged, own_path: Path) -> Iterator[str]:
    """Say of the servers that only a project's file has that no profile gets them: that file stays, and in its folder
    the client starts them itself."""
    scopes: dict[str, set[str]] = {}
    for file, _, name in merged.taken:
        scopes.setdefault(name, set()).add(file.file.scope)
    for name, found in scopes.items():
        if found == {"project"} and name in merged.entries:
            yield (
                f"{name} is in no profile, since only the project's file has it, which stays as it is; to give it to"
                f" a client everywhere, add it to the servers of that client's profile in {edits.short(own_path)}"
            )


def _apply(planned: Sequence[FileChange], moved: Moved, own_path: Path, as_json: bool) -> Path:
    """Write everything and return the folder of the copies. Raises `ChangeError` and `ClickException`."""
    _keep_values(moved)
    kept = changes.write_changes(planned, own_path.parent / changes.FOLDER, what="init")
    if not as_json:
        undo = edits.typed("init --undo", own_path)
        output.say(f"Done. The old files are in {edits.short(kept)}; to put them back: {undo}")
        if moved.values:
            went = output.plural(len(moved.values), "secret")
            output.say(f"{went} went into the keyring. The copies of the old files still hold them.")
    return kept


def _require_keyring(place: Place) -> None:
    """Refuse `--secrets keyring` where no keyring works, before anything is read or asked. Raises `ClickException`."""
    try:
        if place == "keyring":
            keyrings.check_keyring(os.environ)
    except KeyringError as error:
        raise ClickException(f"--secrets keyring: {error}; leave it out, or write --secrets env") from None


def _move(merged: Merged, place: Place) -> Moved:
    """Replace the secrets of all servers by their names, and say of which it is not possible."""
    if place == "keep":
        return Moved()
    merged.entries = {name: dict(entry) for name, entry in merged.entries.items()}  # those of the clients stay
    known = {name: entry for name, entry in merged.known.items() if name not in merged.entries}
    moved, old = move_secrets(merged.entries, place, os.environ), move_secrets(known, place, os.environ)
    merged.rewritten += old.written
    merged.notes += [*moved.left, *old.left]
    return Moved({**moved.values, **old.values}, [*moved.written, *old.written])


def _keep_values(moved: Moved) -> None:
    """Give the values to the keyring, before any file loses them. Raises `ClickException`."""
    for name, value in moved.values.items():
        try:
            keyrings.keep_value(name, value, os.environ)
        except KeyringError as error:
            raise ClickException(f"{name} does not go into the keyring: {error}; nothing was changed") from None


def _forget_values(before: str, after: str) -> None:
    """Delete from the keyring what the file named before, and names no more."""
    for name in keyrings.keyring_names(before) - keyrings.keyring_names(after):
        with suppress(KeyringError):
            keyrings.forget_value(name, os.environ)


def _choose(machine: Machine, clients: Sequence[str]) -> list[ClientFile]:
    """Return the files of the chosen clients. Raises `UnknownName` for a name that no client has."""
    files = client_files(machine)
    names = sorted({each.client for each in files})
    if unknown := next((each for each in clients if each not in names), ""):
        meant = guess(unknown, names) or f"; the clients are {', '.join(names)}"
        raise UnknownName(f"no client is called {unknown!r}{meant}")
    return [each for each in files if not clients or each.client in clients]


def _mention_project(files: Iterable[ClientFile]) -> None:
    """Say how many servers the working folder brings, but not their names: it may be a cloned repository."""
    here = [file for file in scan(each for each in files if each.scope == "project") if not file.problem]
    count = sum(not each.is_foretool and not each.problem for file in here for each in file.servers)
    if count:
        output.say(f"\nThis folder has {output.plural(count, 'server')} of its own: --project takes them too.")


def _read_sources(sources: Sequence[Path]) -> list[FoundFile]:
    """Read the configs of other proxies. Raises `ClickException` for one that holds no servers."""
    files = []
    for path in sources:
        try:
            kind = KINDS.get(path.suffix, "json")
            file = proxy_file(path.absolute(), open_document(read_regular(path).decode("utf-8-sig"), kind).data())
        except (OSError, UnicodeDecodeError, DocumentError) as error:
            raise ClickException(f"{path}: cannot be read: {error}") from None
        if file is None:
            raise ClickException(f'{path}: expected servers under "mcpServers" or "servers", found none')
        files.append(file)
    return scan(files)


def _add_hooks(
    planned: list[FileChange], add: Callable[..., list[FileChange]], wants_hook: bool | None,
    wants_shell_hook: bool | None, problems: list[str], *, asks: bool,
) -> list[FileChange]:  # fmt: skip
    """Return the changes with the hooks that are wanted; `add` adds those of one kind. `problems` gets the files that
    cannot take one.

    Until foretool is in a client the prompt hook is added unless the answer is no. Later a client without it stands for
    such an answer. Where nobody is asked, that is what happens.
    """
    hooked = [change.path for change in add(planned, hooks=HOOKS, problems=[]) if change not in planned]
    if wants_hook is None and hooked and not client_hooks.has_prompt_hook():
        wants_hook = _is_first_set_up()
        if asks:
            wants_hook = _wants_prompt_hook(hooked, default=wants_hook)
    for hooks, is_wanted in ((HOOKS, wants_hook), (SHELL_HOOKS, wants_shell_hook)):
        planned = add(planned, hooks=hooks, problems=problems) if is_wanted else planned
    return planned


def _is_first_set_up() -> bool:
    """Return whether no client of this user has foretool, whichever clients this run is about."""
    files = client_files(this_machine())
    return not any(_has_foretool(file) for file in scan(each for each in files if each.scope == "user"))


def _with_hooks(
    planned: Sequence[FileChange], files: Iterable[FoundFile], config: Path, hooks: Mapping[str, ClientHook],
    problems: list[str], *, with_profiles: bool,
) -> list[FileChange]:  # fmt: skip
    """Return the changes, and those that add one of these hooks to each client that has such hooks. `problems` gets the
    files that cannot take one."""
    by_path = {change.path: change for change in planned}
    again = f"foretool init --{'shell-' * (hooks is SHELL_HOOKS)}hook"
    running: dict[str, dict[str, str]] = {}
    for file in sorted((each for each in files if not each.problem), key=lambda each: each.file.scope != "user"):
        of_hook = running.setdefault(client_hooks.runs_hooks_of(file.file.client), {})
        of_hook.setdefault(file.file.client, profile_after(file, with_profiles=with_profiles))
    for client, profiles in running.items():
        if (hook := hooks.get(client)) is not None:
            path = Path(hook.file).expanduser()
            try:
                profile = _choose_profile(hook, path, client, profiles)
                typed = hint.hook_command(config, profile, client, is_shell=hooks is SHELL_HOOKS)
                others = [each for each, own in profiles.items() if own != profile] if profile else []
                alike = f"with the servers of {profile} alone, in {' and '.join(others)} too" if others else ""
                if change := client_hooks.change(hook, path, typed, by_path.get(path)):
                    by_path[path] = replace(change, hooks=f"{change.hooks} ({alike})") if alike else change
                elif alike and hooks is HOOKS:
                    do = f"foretool hint --install --client {client} --profile NAME"
                    problems.append(f"{edits.short(path)} runs {alike}; to choose another profile: {do}")
            except DocumentError as error:
                problems.append(f"{path}: {error}; then {again}")
            except OSError as error:
                problems.append(f"{path}: cannot be read ({error.strerror}); check its permissions; then {again}")
    return list(by_path.values())


def _choose_profile(hook: ClientHook, path: Path, client: str, profiles: Mapping[str, str]) -> str:
    """Return the profile of a hook that several clients may run: the first that it got stays. `profiles`: of the
    clients of this run. Raises `DocumentError` and `OSError`."""
    with suppress(FileNotFoundError):
        had = client_hooks.profile_in(hook, read_regular(path))
        if had and had in {*profiles.values(), *(client_hooks.clients_with_hooks_of(client) - profiles.keys())}:
            return had
    return next(iter(profiles.values()))


def _wants_profiles(files: Sequence[FoundFile], merged: Merged) -> bool:
    if not (_seen_by_more(files, merged) or merged.widened):
        return False
    output.say_lines("")
    return output.agrees("Keep each client to the servers that it had, with a profile for each?")


def _wants_prompt_hook(files: Sequence[Path], *, default: bool) -> bool:
    """Ask whether the clients of these files shall run our hook."""
    titles = [hook.title for hook in HOOKS.values() if Path(hook.file).expanduser() in files]
    *others, last = titles
    named = f"{', '.join(others)} and {last}" if others else last
    output.say_lines("")
    output.say_paragraph(
        f"{named} can run foretool at each of your prompts, to name the model likely tools: of 21 tasks"
        " with 128 tools a small model did 11 with that, and 7 without. Your prompts are then on record on this"
        " machine, like the tasks of searches; foretool forget deletes them."
    )
    return output.agrees("Do that?", default=default)


def _secrets(files: Iterable[FoundFile], merged: Merged) -> Secrets:
    found = [each for file in files for server in file.servers for each in (server.entry, server.written)]
    return secrets_of([*found, *merged.known.values(), *merged.entries.values()])


def _seen_by_more(files: Iterable[FoundFile], merged: Merged) -> dict[str, Origin]:
    """Return the new servers that a single client or project had and that more will see, and who had each."""
    clients = {file.file.client for file in files if file.file.registers and not file.problem}
    alone = {name: at for name, at in merged.alone().items() if not merged.entries[name].get("disabled")}
    return {name: at for name, at in alone.items() if at.folder or clients - {at.client}}


def _show_found(files: Sequence[FoundFile], merged: Merged, own: Path, *, with_profiles: bool) -> None:
    """Print the servers of each client, and what they are in our file."""
    if not files:
        output.say("No MCP client was found. To add a server: foretool add. To register by hand: foretool connect")
    alone = {} if with_profiles else _seen_by_more(files, merged)
    _show_files(files, alone, is_long=len(files) > _SHOWN)
    _show_servers(files, merged, own, with_profiles=with_profiles)


def _show_servers(files: Sequence[FoundFile], merged: Merged, own: Path, *, with_profiles: bool) -> None:
    """Print what the servers of all clients are in our file."""
    is_long = len(files) > _SHOWN
    alone = {} if with_profiles else _seen_by_more(files, merged)
    if merged.entries:
        told = f": {', '.join(merged.entries)}" if is_long else ":"
        count = output.plural(len(merged.entries), "server")
        output.say_lines("")
        output.say_paragraph(f"{count} for {edits.short(own)}{told}", "", "  ", "bold")
    by_titles: dict[str, list[str]] = {}
    for name in merged.entries:
        if name not in alone:
            by_titles.setdefault(" and ".join(merged.titles(name)), []).append(name)
    if by_titles and not is_long:
        shared = "; ".join(f"{', '.join(names)} from {titles}" for titles, names in by_titles.items())
        output.say_paragraph(shared, "  ", "  ")
    if alone:
        _say_shared(alone, is_long=is_long)
    _show_starts(merged)
    _show_notes(merged.notes)


def _show_apart(files: Sequence[FoundFile], together: Merged, apart: Merged, own: Path) -> None:
    """Print the servers once more if keeping the clients apart makes others of them."""
    if apart.entries != together.entries:
        _show_servers(files, apart, own, with_profiles=True)


def _show_starts(merged: Merged) -> None:
    """Print what new servers of the working folder start or reach: a name says nothing of that, and a repository may
    have brought them."""
    brought = {name: file for file, _, name in merged.taken if file.file.is_brought and name in merged.entries}
    shown = [name for name, file in brought.items() if merged.origins[name][0].title == file.file.title]
    if shown:
        output.say_lines("")
        output.say_paragraph("What this folder brings, and what runs as you after a yes:", "", "  ", "yellow")
    for name in shown:
        entry = merged.entries[name]
        about = describe_variables(entry)
        told = " ".join(f"{name}: {describe_entry(entry)}{about and f' ({about})'}".split())
        output.say_paragraph(told, "  ", "    ")


def _show_notes(notes: Iterable[str]) -> None:
    """Print what became of entries; what is said of several stands once."""
    by_note: dict[str, list[str]] = {}
    for note in notes:
        about, _, said = note.partition(": ")
        by_note.setdefault(said, []).append(about)
    for said, subjects in by_note.items():
        told = ": ".join(filter(None, (", ".join(subjects), said)))
        output.say_paragraph(f"Note: {told}", "  ", "    ")


def _show_files(files: Sequence[FoundFile], alone: Mapping[str, Origin], *, is_long: bool) -> None:
    """Print the servers of each client; `is_long`: only how many each has, and how many of these no other has."""
    if is_long:
        told = [_say_count(file, alone) for file in files if not file.problem]
        head = (
            f"{output.plural(len(told), 'client')} with their servers{' (alone: no other has it)' if alone else ''}: "
        )
        output.say_paragraph(f"{head}{', '.join(told)}", "", "  ", "bold")
    for file in files:
        where = f"({edits.short(file.file.path)})"
        if file.problem:
            output.say_paragraph(f"{file.file.title} stays as it is {where}: {file.problem}", "  ", "    ", "yellow")
        elif not is_long:
            names = [each.name for each in file.servers if not each.is_foretool and not each.problem]
            output.say_paragraph(f"{_say_servers(file, names)} {where}", "", "  ", "bold")
        for server in file.servers:
            if server.problem:
                whose = f" of {file.file.title}" if is_long else ""
                output.say(f"  {server.name}{whose} stays there: {server.problem}")


def _has_foretool(file: FoundFile) -> bool:
    return any(each.is_foretool for each in file.servers)


def _say_count(file: FoundFile, alone: Mapping[str, Origin]) -> str:
    """Say how many servers the file of a client has, and how many of these no other has."""
    count = sum(not each.is_foretool and not each.problem for each in file.servers)
    folders = Counter(at.folder for at in alone.values() if at.title == file.file.title)
    told = [f"{number} alone{folder and f' in {edits.short(Path(folder))}'}" for folder, number in folders.items()]
    if list(folders.values()) != [count] or not count:
        told.insert(0, "has foretool" if _has_foretool(file) and not count else str(count))
    return f"{file.file.title} ({', '.join(told)})"


def _say_servers(file: FoundFile, names: Sequence[str]) -> str:
    """Say which servers the file of a client has."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    has = [f"{output.plural(len(names), 'server')}: {', '.join(names[:_SHOWN])}{more}"] if names else []
    has += ["has foretool"] if _has_foretool(file) else []
    return f"{file.file.title}, {', '.join(has) or 'no server'}"


def _say_shared(alone: Mapping[str, Origin], *, is_long: bool) -> None:
    """Say which servers more clients will see than had them."""
    if is_long:
        output.say_paragraph("All your clients will see all of these (--profiles keeps them apart).", "  ", "  ")
        return
    output.say_paragraph("One client alone had each of these, and all will see them (--profiles keeps them apart):")
    by_place: dict[str, list[str]] = {}
    for name, at in alone.items():
        is_named = not at.folder or at.title.endswith("this project")
        place = f"{at.title}{'' if is_named else f' in {edits.short(Path(at.folder))}'}"
        by_place.setdefault(place, []).append(name)
    told = "; ".join(f"{', '.join(names)} from {at}" for at, names in by_place.items())
    output.say_paragraph(told, "  ", "  ")


def _show_planned(
    files: Sequence[FoundFile], planned: Sequence[FileChange], problems: Sequence[str], own: Path
) -> None:
    told = {f"{file.file.path}: {file.problem}" for file in files}  # which stand with their clients
    for problem in problems:
        if problem not in told:
            output.say_paragraph(f"Not changed: {problem}", "  ", "    ", "yellow")
    if planned:
        output.say("\nWhat changes:", "bold")
        replaced = [change.replaced for change in planned if change.replaced]
        counts_files = len(replaced) > _MOST_FILES
        if counts_files:
            servers = output.plural(sum(replaced), "server")
            output.say(f"  {len(replaced)} clients get foretool in place of {servers}")
        by_why: dict[str, list[FileChange]] = {}
        for change in planned:
            if why := change.hooks if counts_files and change.replaced else change.whole_why:
                by_why.setdefault(why, []).append(change)
        for why, changed in by_why.items():
            if counts_files and len(changed) > 1:
                paths = ", ".join(edits.short(change.path) for change in changed[:_SHOWN])
                more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
                output.say_paragraph(f"{paths}{more}: each {why}", "  ", "    ")
                continue
            for change in changed:
                made = "" if change.before is not None else "is made and "
                output.say_paragraph(f"{edits.short(change.path)} {made}{why}", "  ", "    ")
    elif files:
        output.say("\nNothing has to change: your clients have foretool, and its file has their servers.")
        _say_unstarted(own)


def _say_unstarted(own: Path) -> None:
    """Say what to do about servers that were never started or failed: an earlier `init` may have been interrupted."""
    from foretool.server.commands.list import next_step, read_state  # only a home that is set up needs it

    with suppress(ConfigError, StorageError):  # `doctor` and `list` say what is wrong
        command, what = next_step(read_state(load(own)))
        if command == "foretool doctor":
            output.say_paragraph(f"Next: {edits.typed('doctor', own)} {what}.")


def _say_recorded(planned: Iterable[FileChange]) -> None:
    """Say what the prompt hook keeps where no question has said it."""
    if any("at every prompt" in change.hooks for change in planned):
        output.say("  Your prompts are then on record on this machine; --no-hook leaves the hook out.")


def _show_differences(planned: Sequence[FileChange], secrets: Secrets) -> None:
    if planned:
        output.say("\nValues of variables and headers stand as [NAME] here; the files get the values.", "dim")
    for change in planned:
        output.say(f"\n{edits.short(change.path)}", "bold")
        edits.show_lines([secrets.redact(line) for line in changes.difference(change)[2:]])


def _say_dry(*, with_lines: bool) -> None:
    typed = type_again("dry_run", "with_lines")
    lines = "" if with_lines else f"; each line that changes: {typed} --dry-run --diff"
    output.say(f"\nNothing was changed. To change the files: {typed}{lines}")


def _say_unready(planned: Sequence[FileChange], own: Path, merged: Merged) -> None:
    """Say which servers of our file cannot start as their entries are, as far as that is known before they are
    started."""
    text = next((change.after for change in planned if change.path == own), None)
    if text is None:
        return
    try:
        config = parse(text, own)
        broken, missing = config.broken, {each.name: find_lack(each) for each in config.servers.values()}
    except ConfigError as error:  # what else is wrong, `load` says behind the changes
        broken, missing = dict(error.broken), {}
    bound = [name for name, said in broken.items() if lacks_folder(said)]
    lacking = {name: _say_lacking(name, said, own, merged) for name, said in broken.items() if name not in bound}
    lacking |= {name: what for name, what in missing.items() if what}
    if lacking:
        output.say(f"\n{output.plural(len(lacking), 'server')} will not start with foretool yet:", "yellow")
        for name, why in list(lacking.items())[:_SHOWN]:
            output.say_paragraph(f"{name}: {why}", "  ", "    ")
        if len(lacking) > _SHOWN:
            output.say(f"  and {len(lacking) - _SHOWN} more")
    if bound:
        run = "runs" if len(bound) == 1 else "run"
        output.say_lines("")
        output.say_paragraph(f"{', '.join(bound)} {run} only in windows that have a folder open.", "", "  ")


def _say_lacking(name: str, said: str, own: Path, merged: Merged) -> str:
    """Say what a server of our file lacks, where to write it, and which client has what we have not."""
    placed = split_place(said)
    if not placed.file:
        return said
    problem = placed.problem.replace(" its value there", f" its value into {edits.short(own)} ({placed.key})")
    variable = re.match(r"variable (\w+) is not set: ", problem)
    if variable is None:
        return problem
    for file, server, our_name in merged.taken:
        note = next((each for each in server.notes if variable[1] in re.findall(r"\w+", each)), "")
        if our_name == name and note:
            has = f"asks you for {variable[1]}" if "asked you" in note else f"has {variable[1]}"
            return f"{file.file.title} {has} and starts it, foretool cannot: {problem[variable.end() :]}"
    return problem


def _start(place: Path | None, own: Path, as_json: bool, may_ask: bool) -> Diagnosis:
    """Start every server once and say what is wrong with which."""
    if not as_json and not sys.stderr.isatty():  # where the progress bar says it
        output.say("\nStarting every server once:", "bold")
    config = load(place)
    try:
        diagnosis = doctor.run_checks(config, may_ask=may_ask)
    except KeyboardInterrupt:
        undo, again = edits.typed("init --undo", own), edits.typed("doctor", own)
        changed = "Your clients' files are changed: restart the clients, and they start foretool."
        output.warn(f"{changed} To put them back: {undo}. To start the servers again: {again}")
        raise click.Abort from None
    if not as_json:
        doctor.show_diagnosis(diagnosis, config.path)
        doctor.say_mendable(diagnosis)
    return diagnosis


def _end(
    as_json: bool,
    files: Sequence[FoundFile],
    merged: Merged,
    planned: Sequence[FileChange],
    problems: Sequence[str],
    kept: Path | None,
    diagnosis: Diagnosis | None,
) -> int:
    if as_json:
        report = {
            "clients": [
                {
                    "client": file.file.client,
                    "title": file.file.title,
                    "path": str(file.file.path),
                    "servers": [server.name for server in file.servers if not server.is_foretool],
                    "problem": file.problem,
                }
                for file in files
            ],
            "added": {name: merged.titles(name) for name in merged.entries},
            "notes": merged.notes,
            "changes": [{"path": str(change.path), "why": change.whole_why} for change in planned],
            "problems": problems,
            "backup": str(kept) if kept else None,
            "is_well": diagnosis.is_well if diagnosis else None,
            "findings": diagnosis.findings if diagnosis else [],
        }
        output.emit(report)
    elif kept is not None:
        _say_hooks(planned)
        titles = list(dict.fromkeys(file.file.title for file in files if file.file.registers and not file.problem))
        which = ", ".join(titles) if len(titles) <= _SHOWN else f"your {len(titles)} clients"
        restart = f"Now restart {which}. " if titles else ""
        output.say(f"{restart}Later, to see what was missed: foretool misses")
    return int(diagnosis is not None and not diagnosis.is_well)


def _say_hooks(planned: Iterable[FileChange]) -> None:
    paths = {change.path for change in planned}
    hooks = (*HOOKS.values(), *SHELL_HOOKS.values())
    for text in dict.fromkeys(hook.after for hook in hooks if Path(hook.file).expanduser() in paths):
        if text:
            output.say(text)


def _undo(own: Path, backups: Path, as_json: bool, *, dry_run: bool) -> int:
    before = edits.read_text(own)
    undone, earlier = leaving.undo_init(own, backups, dry_run=dry_run)
    if not dry_run:
        _forget_values(before, edits.read_text(own))
    status = int(bool(undone.problems))
    if as_json:
        restored = [str(each) for each in (*undone.restored, *undone.edited)]
        output.emit({"restored": restored, "problems": undone.problems})
        return status
    is_now, put_back = "would be" if dry_run else "is", {*undone.restored, *undone.edited}
    for path in undone.restored:
        what = "as it was" if path in undone.becomes else "gone, as it was before"
        output.say(f"{edits.short(path)} {is_now} {what}")
    for path in undone.edited:
        if copy := undone.rewritten.get(path):
            has = "would have" if dry_run else "has"
            old = f"{leaving.NOT_AS_WRITTEN} {edits.short(copy)}"
            said = f"{edits.short(path)} {has} its servers back, with your edits since, but {old}"
            output.say_paragraph(said, "", "  ", "yellow")
        else:
            output.say(f"{edits.short(path)} {is_now} as it was, with your edits since")
    for problem in undone.problems:
        output.say(problem, "yellow")
    if titles := list(dict.fromkeys(each.title for each in client_files(this_machine()) if each.path in put_back)):
        output.say(f"{'That would need a restart of' if dry_run else 'Now restart'} {', '.join(titles)}.")
    if not dry_run and own.exists() and not find_registered(own):
        again = edits.typed("init", own)
        output.say(f"No client starts foretool now. {edits.short(own)} has servers still; to register it: {again}")
    if dry_run:
        output.say("This was a dry run: nothing was changed.")
    elif earlier is not None:
        again = edits.typed("init --undo", own)
        output.say(f"An earlier init, of {earlier.moment}, is still in force. To undo that too: {again}")
    return status

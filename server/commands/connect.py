"""`foretool connect` and `token`: the entry that registers foretool with a client, and the token of one over HTTP.

Write no file.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from foretool.server.commands import edits, hint, output
from foretool.server.commands.options import UnknownName, config_option, json_option, profile_option
from foretool.server.config.files import find_place
from foretool.server.config.loader import load
from foretool.server.config.tokens import DEFAULT, digest
from foretool.server.setup.client_hooks import HOOKS, hook_entry, runs_hooks_of
from foretool.server.setup.clients import ClientFile, client_files, this_machine
from foretool.server.setup.registrations import Registration, registration
from foretool.server.setup.scan import scan

_SHOWN: Final = 6
"""Names of servers that one line has."""


@click.command("connect")
@click.argument("client", required=False)
@profile_option
@config_option
@json_option
def command(path: Path | None, as_json: bool, profile: str, client: str | None) -> int:
    """Print the config entry that registers foretool with CLIENT.

    Prints the names of all clients if you name none. Writes no file; `foretool init` does.
    """
    chosen = find_place(path, os.environ).path
    config = load(chosen) if chosen.exists() or profile else None
    if config is not None:
        config.require_profile(profile)
    files = _files()
    if client is not None and client not in files:
        raise UnknownName(f"no client is called {client!r}; the clients are {', '.join(sorted(files))}")
    launch = [*hint.launcher(), "serve", "--config", str(chosen), *(["--profile", profile] if profile else [])]
    found = [registration(file, launch) for name, file in files.items() if client in (None, name)]
    if as_json:
        output.emit([_with_hook(each, chosen, profile) for each in found])
    elif client is None:
        _print_names(files)
    else:
        _print(found[0], chosen, profile)
    if client is None and not as_json:
        return 0
    own = edits.short(chosen)
    if config is None:
        hint.warn_of_no_config(chosen)
    elif any(chosen == Path(each.file) for each in found):
        output.warn(f"{own} is the client's own file: foretool would start itself; copy your servers to another file")
    elif others := _other_servers([files[each.client] for each in found]):
        output.warn(f"Then remove {others} from the client's config; otherwise every tool appears twice.")
    return 0


def _other_servers(files: list[ClientFile]) -> str:
    """Name the servers that clients have beside foretool."""
    found = [each.name for file in scan(files) for each in file.servers if not each.is_foretool]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{', '.join(found[:_SHOWN])}{more}"


def _files() -> dict[str, ClientFile]:
    """Return the file of each client that foretool is registered in."""
    found: dict[str, ClientFile] = {}
    for each in client_files(this_machine()):
        if each.registers:
            found.setdefault(each.client, each)
    return found


def _with_hook(each: Registration, config: Path, profile: str) -> dict[str, object]:
    hook = HOOKS.get(runs_hooks_of(each.client))
    entry = hook_entry(hook, hint.hook_command(config, profile, hook.client)) if hook else None
    told: dict[str, object] = {name: getattr(each, name) for name in each.__struct_fields__}
    return {**told, "hook": entry, "hook_file": hook.file if hook else ""}


def _print_names(files: dict[str, ClientFile]) -> None:
    output.say("foretool init registers foretool with all clients. By hand, with one of them:\n")
    for name, file in files.items():
        output.say(f"foretool connect {name:<16} {file.title}{', installed' if file.is_installed else ''}")


def _print(each: Registration, config: Path, profile: str) -> None:
    output.say(each.title, "bold")
    if each.command:
        click.echo(f"\n{each.command}\n")
    if each.link:
        output.say("or open:" if each.command else "Open:")
        click.echo(f"\n{each.link}\n")
    output.say(f"{'or add' if each.command or each.link else 'Add'} to {edits.short(Path(each.file))}:")
    click.echo(f"\n{each.text}\n")
    output.say(f"{each.after}\n")
    if (hook := HOOKS.get(runs_hooks_of(each.client))) is not None:
        typed = f"foretool hint --install{'' if hook.client == 'claude-code' else f' --client {hook.client}'}"
        output.say(f"To have foretool name likely tools at every prompt, and learn from your tasks: {typed}")
        if hook.module:
            return
        output.say(f"or add to {hook.file}:")
        entry = hook_entry(hook, hint.hook_command(config, profile, hook.client))
        click.echo(f"\n{json.dumps(entry, indent=2)}\n")


_BYTES = 32
"""Random bytes of a token, twice of what cannot be guessed."""


class NewToken(Struct, frozen=True):
    """A token, and its entry for `foretool.tokens`."""

    token: str
    entry: dict[str, object]


@click.group("token")
def token() -> None:
    """Make bearer tokens for clients over HTTP."""


@token.command("new")
@click.option("--name", default="client", show_default=True, metavar="NAME", help="What you call it in the config.")
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME",
    help=f"A profile that it opens; give it once for each. {DEFAULT!r} is the list at /mcp, '*' is all.  [default: *]",
)
@config_option
@json_option
def new(path: Path | None, name: str, profiles: tuple[str, ...], as_json: bool) -> int:
    """Print a new random token, and the entry that lets it in.

    The token is shown only once. The entry holds its SHA-256, so that nobody who reads the config learns the token.
    Writes no file.
    """
    if not name or not name.isprintable():
        raise click.BadParameter("expected a name that can be printed", param_hint="--name")
    named = [each for each in profiles if each not in (DEFAULT, "*")]
    if named and (path is not None or find_place(None, os.environ).path.exists()):
        config = load(path)
        for each in named:
            config.require_profile(each)
    made = secrets.token_urlsafe(_BYTES)
    entry: dict[str, object] = {"name": name, "sha256": digest(made), "profiles": list(profiles) or ["*"]}
    return output.show(NewToken(made, entry), as_json, _print_token)


def _print_token(made: NewToken) -> None:
    output.say("The token, which is not shown again:", "bold")
    click.echo(f"\n{made.token}\n")
    output.say('Add to the "foretool" block of the config; a running foretool reads it:')
    click.echo(f'\n"tokens": [\n  {_lines(made.entry)}\n]\n')
    output.say("The client sends it with every request, as the header Authorization: Bearer ...")


def _lines(entry: dict[str, object]) -> str:
    inner = ",\n    ".join(
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()
    )
    return f"{{\n    {inner}\n  }}"

"""`foretool connect`: prints the config entry that registers foretool with a client. Writes no file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
from click import UsageError

from foretool.server.commands import hint, output
from foretool.server.commands.options import config_option, json_option, profile_option
from foretool.server.config.loader import load
from foretool.server.config.places import find_place
from foretool.server.setup.clients import ClientFile, client_files, this_machine
from foretool.server.setup.prompt_hooks import HOOKS, hook_entry
from foretool.server.setup.registrations import Registration, registration


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
        raise UsageError(f"no client is called {client!r}; the clients are {', '.join(sorted(files))}")
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
    if config is None:
        output.warn(f"{chosen}: no such file yet; foretool init makes it out of the servers of your clients")
    elif any(chosen == Path(each.file) for each in found):
        output.warn(
            f"{chosen} is the client's own file: foretool would start itself; copy your servers to another file"
        )
    else:
        output.warn("Then remove your other servers from the client's config; otherwise every tool appears twice.")
    return 0


def _files() -> dict[str, ClientFile]:
    """Return the file of each client that foretool is registered in."""
    found: dict[str, ClientFile] = {}
    for each in client_files(this_machine()):
        if each.registers:
            found.setdefault(each.client, each)
    return found


def _with_hook(each: Registration, config: Path, profile: str) -> dict[str, object]:
    hook = HOOKS.get(each.client)
    entry = hook_entry(hook, hint.hook_command(config, profile, each.client)) if hook else None
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
    output.say(f"{'or add' if each.command or each.link else 'Add'} to {each.file}:")
    click.echo(f"\n{each.text}\n")
    output.say(f"{each.after}\n")
    if (hook := HOOKS.get(each.client)) is not None:
        typed = f"foretool hint --install{'' if each.client == 'claude-code' else f' --client {each.client}'}"
        output.say(f"To have foretool name likely tools at every prompt, and learn from your tasks: {typed}")
        if hook.module:
            return
        output.say(f"or add to {hook.file}:")
        entry = hook_entry(hook, hint.hook_command(config, profile, each.client))
        click.echo(f"\n{json.dumps(entry, indent=2)}\n")

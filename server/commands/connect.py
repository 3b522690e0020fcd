"""`foretool connect`: prints the config entry that registers foretool with a client. Writes no file."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import click
from msgspec import Struct

from foretool.server.commands import hint, output
from foretool.server.commands.options import config_option, json_option, profile_option
from foretool.server.commands.prompt_hooks import HOOKS, hook_entry
from foretool.server.config.loader import load
from foretool.server.config.places import find_place

CLAUDE_CODE = HOOKS["claude-code"]
NAMES = ("claude-desktop", "claude-code", "cursor", "vscode")


class Registration(Struct, frozen=True):
    """How one client learns about foretool."""

    client: str
    title: str
    file: str
    """The file that `entry` belongs into; the user creates it if it does not exist."""
    entry: dict[str, object]
    command: str
    """A command of the client that does the same, or ""."""
    after: str
    """What the user does next."""
    hook: dict[str, object] | None = None
    """The setting that runs `foretool hint` at each prompt; None if the client has no such hooks."""
    hook_file: str = ""


@click.command("connect")
@click.argument("client", type=click.Choice(NAMES), required=False, metavar=f"[{'|'.join(NAMES)}]")
@profile_option
@config_option
@json_option
def command(path: Path | None, as_json: bool, profile: str, client: str | None) -> int:
    """Print the config entry that registers foretool with a client.

    Prints the entries of all clients if you name none. Writes no file.
    """
    chosen = find_place(path, os.environ).path
    config = load(chosen) if chosen.exists() or profile else None
    if config is not None:
        config.require_profile(profile)
    found = [registration(name, hint.launcher(), chosen, profile) for name in NAMES if client in (None, name)]
    if as_json:
        output.emit(found)
    else:
        for each in found:
            _print(each)
    if config is None:
        output.warn(f"{chosen}: no such file yet; create it with your servers, in the format of your client's own file")
    elif any(chosen == Path(each.file).expanduser().absolute() for each in found):
        output.warn(
            f"{chosen} is the client's own file: foretool would start itself; copy your servers to another file"
        )
    else:
        output.warn("Then remove your other servers from the client's config; otherwise every tool appears twice.")
    return 0


def registration(client: str, command: list[str], config: Path, profile: str = "") -> Registration:
    """Return the entry for a client that starts `command` to serve a profile of a config."""
    of_profile = ["--profile", profile] if profile else []
    program, rest = command[0], [*command[1:], "serve", "--config", str(config), *of_profile]
    server: dict[str, object] = {"command": program, "args": rest}
    servers: dict[str, object] = {"mcpServers": {"foretool": server}}
    if client == "claude-desktop":
        folders = {"darwin": "~/Library/Application Support/Claude/", "win32": "%APPDATA%\\Claude\\"}
        file = f"{folders.get(sys.platform, '~/.config/Claude/')}claude_desktop_config.json"
        return Registration(client, "Claude Desktop", file, servers, "", "Then restart Claude Desktop.")
    if client == "claude-code":
        typed = f"claude mcp add --scope user foretool -- {shlex.join([program, *rest])}"
        after, hook = "Check with: claude mcp list", hook_entry(CLAUDE_CODE, hint.hook_command(config, profile))
        return Registration(client, "Claude Code", "~/.claude.json", servers, typed, after, hook, CLAUDE_CODE.file)
    if client == "cursor":
        return Registration(client, "Cursor", "~/.cursor/mcp.json", servers, "", "Then enable it in Settings, MCP.")
    entry: dict[str, object] = {"servers": {"foretool": {"type": "stdio", **server}}}
    typed = f"code --add-mcp {shlex.quote(json.dumps({'name': 'foretool', **server}))}"
    return Registration(client, "VS Code", ".vscode/mcp.json", entry, typed, "Then start it in the MCP servers view.")


def _print(each: Registration) -> None:
    output.say(each.title, "bold")
    if each.command:
        click.echo(f"\n{each.command}\n")
    output.say(f"{'or add' if each.command else 'Add'} to {each.file}:")
    click.echo(f"\n{json.dumps(each.entry, indent=2)}\n")
    output.say(f"{each.after}\n")
    if each.hook:
        output.say(
            "To have foretool name likely tools at every prompt, and learn from your tasks: foretool hint --install"
        )
        output.say(f"or add to {each.hook_file}:")
        click.echo(f"\n{json.dumps(each.hook, indent=2)}\n")

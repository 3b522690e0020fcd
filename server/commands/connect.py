"""`foretool connect`: the lines that register foretool with a client. No file is written."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import click

from foretool.server.commands import hint, output
from foretool.server.commands.launcher import launcher
from foretool.server.commands.options import config_option, json_option, profile_option
from foretool.server.config.loader import Config, default_config, load

NAMES = ("claude-desktop", "claude-code", "cursor", "vscode")


@dataclass(frozen=True, slots=True)
class Registration:
    """How one client is told of foretool."""

    client: str
    title: str
    file: str
    """Where `entry` goes; created if it is not there."""
    entry: dict[str, object]
    command: str
    """A command that does the same; "" where the client has none."""
    after: str
    hook: dict[str, object] | None = None
    """What makes it run `foretool hint` at each prompt, where it has such hooks; `foretool hint --install` adds it."""
    hook_file: str = ""


@click.command("connect")
@click.argument("client", type=click.Choice(NAMES), required=False, metavar=f"[{'|'.join(NAMES)}]")
@profile_option
@config_option
@json_option
def command(path: Path | None, as_json: bool, profile: str, client: str | None) -> int:
    """Print the lines that register foretool with a client.

    All clients if none is named. Nothing is written.
    """
    chosen = (path or default_config()).absolute()
    config = load(path) if chosen.exists() or profile else None
    if config is not None:
        config.require_profile(profile)
    arguments = ["serve", "--config", str(chosen), *(["--profile", profile] if profile else [])]
    found = [_hooked(registration(name, launcher(), arguments), chosen) for name in NAMES if client in (None, name)]
    if as_json:
        output.emit(found)
    else:
        for each in found:
            _print(each)
    _remark(config, chosen, found)
    return 0


def _hooked(each: Registration, config: Path) -> Registration:
    """With the prompt hook, for the client that has one."""
    if each.client != "claude-code":
        return each
    return replace(each, hook=hint.hook_entry(hint.hook_command(config)), hook_file=str(hint.SETTINGS))


def registration(client: str, command: list[str], arguments: list[str]) -> Registration:
    program, rest = command[0], [*command[1:], *arguments]
    server: dict[str, object] = {"command": program, "args": rest}
    servers: dict[str, object] = {"mcpServers": {"foretool": server}}
    words = shlex.join([program, *rest])
    if client == "claude-desktop":
        return Registration(
            client, "Claude Desktop", _desktop_file(), servers, "", "Quit Claude Desktop and start it again."
        )
    if client == "claude-code":
        typed = f"claude mcp add --scope user foretool -- {words}"
        return Registration(client, "Claude Code", "~/.claude.json", servers, typed, "Check with: claude mcp list")
    if client == "cursor":
        return Registration(client, "Cursor", "~/.cursor/mcp.json", servers, "", "Switch it on in Settings, MCP.")
    entry: dict[str, object] = {"type": "stdio", **server}
    typed = f"code --add-mcp {shlex.quote(json.dumps({'name': 'foretool', **server}))}"
    return Registration(
        client,
        "VS Code",
        ".vscode/mcp.json",
        {"servers": {"foretool": entry}},
        typed,
        "Start it in the MCP servers view.",
    )


def _desktop_file(platform: Literal["darwin", "win32"] | str = sys.platform) -> str:
    places = {"darwin": "~/Library/Application Support/Claude", "win32": "%APPDATA%\\Claude"}
    separator = "\\" if platform == "win32" else "/"
    return f"{places.get(platform, '~/.config/Claude')}{separator}claude_desktop_config.json"


def _print(each: Registration) -> None:
    output.say(each.title, "bold")
    if each.command:
        click.echo(f"\n{each.command}\n")
        output.say(f"or in {each.file}:")
    else:
        output.say(f"in {each.file}:")
    click.echo(f"\n{json.dumps(each.entry, indent=2)}\n")
    output.say(f"{each.after}\n")
    if each.hook:
        output.say("To have likely tools named at every prompt, and tasks learned from: foretool hint --install")
        output.say(f"or in {each.hook_file}:")
        click.echo(f"\n{json.dumps(each.hook, indent=2)}\n")


def _remark(config: Config | None, chosen: Path, found: list[Registration]) -> None:
    if config is None:
        output.warn(f"{chosen}: no such file yet; put your servers there, as in your client's own file")
        return
    if any(chosen == Path(each.file).expanduser().absolute() for each in found):
        output.warn(
            f"{chosen} is the client's own file: foretool would start itself; copy your servers to another file"
        )
    else:
        output.warn("Take the servers that foretool starts out of the client's own file, or it has them twice.")

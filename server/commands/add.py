"""`foretool add`: takes a new server into the config, from a command line, an address, JSON, or the MCP Registry."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from click import UsageError

from foretool.server.commands import edits, first_start, output, registry_offers
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.errors import ConfigError, split_place
from foretool.server.config.loader import parse
from foretool.server.config.variables import FOLDER_NAMES, variable_names
from foretool.server.setup import mcp_registry, pasted
from foretool.server.setup.masking import describe_entry
from foretool.server.setup.merge import same_server
from foretool.server.setup.own_servers import OwnServers, save_edit
from foretool.server.setup.pasted import NewServer, PasteError
from foretool.server.system.logs import printable
from foretool.server.transports.upstream.loading import is_launcher

_LARGEST: Final = 1024 * 1024
"""Characters of pasted text that are read."""
_OWN_OPTIONS: Final = frozenset({"--no-start", "--dry-run", "--replace", "--json"})
"""Options of ours that people write behind the command of a server by mistake."""
_WORDS: Final = "foretool.words"
"""Where the words of the command line are kept that click must not read: those behind `--`, or a pasted line."""


class _AddCommand(click.Command):
    """Keeps click away from the words that belong to the server."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = next((at for at in range(len(args)) if pasted.is_line(args[at:])), None)
        if "--" in args and (at is None or args.index("--") < at):
            at = args.index("--")
        if at is not None:
            ctx.meta[_WORDS] = args[at + (args[at] == "--") :]
            ctx.meta[f"{_WORDS} are a line"] = args[at] != "--"
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command("add", cls=_AddCommand)
@click.argument("words", nargs=-1, metavar="[NAME] WHAT")
@click.option("--env", "-e", multiple=True, metavar="NAME=VALUE", help="A variable for the server; may be repeated.")
@click.option("--header", "-H", multiple=True, metavar="'NAME: VALUE'", help="An HTTP header; may be repeated.")
@click.option("--transport", "-t", default="", metavar="KIND", help="http or sse, for an address.  [default: http]")
@click.option("--name", default="", metavar="NAME", help="Call the server this.")
@click.option("--replace", is_flag=True, help="Put it in place of the server of this name.")
@click.option("--search", is_flag=True, help="Only list the servers of the MCP Registry that fit the words.")
@click.option(
    "--registry", default="", metavar="URL", help="Ask this registry.  [default: $FORETOOL_REGISTRY, the official one]"
)
@click.option(
    "--use",
    "kind",
    type=click.Choice(["npm", "pypi", "oci", "remote"]),
    help="Which package of the registry's entry to use.",
)
@click.option("--yes", "-y", "agreed", is_flag=True, help="Ask nothing: add what the registry names.")
@click.option("--no-start", is_flag=True, help="Do not start the server once.")
@edits.dry_run_option
@edits.undo_option
@config_option
@json_option
def command(
    path: Path | None,
    as_json: bool,
    words: tuple[str, ...],
    name: str,
    replace: bool,
    search: bool,
    registry: str,
    kind: str | None,
    agreed: bool,
    no_start: bool,
    dry_run: bool,
    wanted_undo: bool,
    **given: Any,
) -> int:
    """Add a server, and start it once to see whether it works.

    \b
    foretool add time -- uvx mcp-server-time       a command, behind --
    foretool add https://mcp.linear.app/mcp        an address
    foretool add claude mcp add ...                a line for another client
    foretool add '{"mcpServers": ...}'             JSON; "-" reads it from stdin
    foretool add io.github.owner/name              a name in the MCP Registry
    foretool add --search words                    looks in the MCP Registry

    What the registry names is shown before it is run. A value that is secret is better written as ${NAME}, a variable
    that you export: the config then holds no secret.
    """
    if wanted_undo:
        return edits.undo_latest(path, as_json, "add", (name,) if name else words[:1], dry_run=dry_run)
    try:
        if search:
            return registry_offers.search_registry(registry, " ".join(words), as_json)
        if len(words) == 1 and mcp_registry.NAME.fullmatch(words[0]) and _WORDS not in click.get_current_context().meta:
            found = [
                registry_offers.offer_server(registry, words[0], name, kind, agreed=agreed or dry_run, as_json=as_json)
            ]
        else:
            found = [_renamed(each, name) for each in _read(list(words), name, **given)]
    except PasteError as error:
        raise UsageError(str(error)) from None
    own = edits.open_file(path, may_be_missing=True)
    known = own.servers()
    with edits.errors_of(own.path):
        added = [each for each in found if _put(own, each, replace=replace, as_json=as_json)]
    for option in _OWN_OPTIONS.intersection(click.get_current_context().meta.get(_WORDS) or ()):
        output.warn(f"{option} stands behind --, so the server gets it; to give it to foretool, write it before --")
    return _finish(own, added, known, dry_run=dry_run, starts=not no_start, as_json=as_json)


def _read(words: list[str], name: str, env: Sequence[str], header: Sequence[str], transport: str) -> list[NewServer]:
    """Return what the command line names. Raises `PasteError`."""
    meta = click.get_current_context().meta
    behind: list[str] | None = meta.get(_WORDS)
    if behind and meta[f"{_WORDS} are a line"]:
        return pasted.of_line(behind)
    if behind is not None:
        if len(words) + bool(name) != 1 or not behind:
            raise PasteError("expected one name before -- and a command behind it: foretool add NAME -- COMMAND")
        if header or pasted.read_transport(transport) not in ("", "stdio"):
            raise PasteError("--header and --transport http belong to an address, found a command")
        return [pasted.of_command(name or words[0], behind, env)]
    if not words:
        raise PasteError("say what to add: NAME -- COMMAND, an address, JSON, or a name of the MCP Registry")
    last = words[-1]
    text = sys.stdin.read(_LARGEST) if last == "-" else last
    if last == "-" or "{" in text:
        return pasted.of_json(text, words[0] if len(words) == 2 else "")
    if len(words) == 1 and pasted.is_line(line := pasted.split_line(text)):
        return pasted.of_line(line)
    if re.match(r"\w+://", last) and len(words) <= 2:
        if env:
            raise PasteError("--env belongs to a command, found an address; a remote server takes --header")
        return [pasted.of_url(words[0] if len(words) == 2 else name, last, header, transport)]
    if len(words) == 1:
        raise PasteError(
            f"{printable(last)[:60]!r} is no address, no JSON and no name of the MCP Registry"
            f" (io.github.x/y). For a command: foretool add {pasted.slug(last)} -- COMMAND."
            " To look for one: foretool add --search WORD."
        )
    if is_launcher(words[0], ()) or words[0] in ("node", "python", "python3"):
        raise PasteError(
            f"{words[0]!r} is a program; write a name and -- before it: foretool add NAME -- {words[0]} ..."
        )
    return [pasted.of_command(words[0], words[1:], env)]


def _renamed(server: NewServer, name: str) -> NewServer:
    return pasted.checked(NewServer(name, server.entry, server.notes)) if name else server


def _put(own: OwnServers, server: NewServer, *, replace: bool, as_json: bool) -> bool:
    """Add one server to the file; False if the file has it already. Raises `UsageError` for one that may not be."""
    _check(server)
    known, name = own.servers(), server.name
    if same := same_server(server.entry, known, name):
        other = [key for key, value in server.entry.items() if known[same].get(key) != value and key != "type"]
        if not (other and replace and same == name):
            what = f"to change its {', '.join(other)}, add --replace" if other else "nothing to add"
            if not as_json:
                output.say(f"{name} is there already{'' if same == name else f', under the name {same}'}: {what}.")
            return False
    _refuse_taken(name, known, replace=replace)
    own.set_server(name, server.entry)
    return True


def _refuse_taken(name: str, known: Mapping[str, Any], *, replace: bool) -> None:
    """Refuse a name that is, or looks like, the name or the prefix of another server. Raises `UsageError`."""
    for other, entry in known.items():
        if other == name and not replace:
            what = f" ({describe_entry(entry)})" if isinstance(entry, Mapping) else ""
            do = "add --replace to put this one in its place, or --name to call it something else"
            raise UsageError(f"a server called {name!r} exists and is another one{what}; {do}")
        prefix = entry.get("prefix") if isinstance(entry, Mapping) else None
        taken = {_looks(other), _looks(prefix) if isinstance(prefix, str) else ""}
        if other != name and _looks(name) in taken:
            raise UsageError(f"{name!r} would be taken for the server {other!r}; choose another name with --name")


def _looks(name: str) -> str:
    """Return a name without what people do not tell apart."""
    return re.sub(r"[-_.]", "", name).lower()


def _check(server: NewServer) -> None:
    """Refuse an entry that no proxy could read. Raises `UsageError`."""
    text = msgspec.json.encode({"mcpServers": {server.name: server.entry}})
    environ = {**dict.fromkeys((*variable_names(text.decode()), *FOLDER_NAMES), "x"), **os.environ}
    try:
        config = parse(text, Path("new"), environ)
        problem = config.broken.get(server.name, "")
    except ConfigError as error:
        problem = str(error)
    if problem:
        raise UsageError(split_place(problem).without_file)


def _finish(
    own: OwnServers, added: list[NewServer], known: Collection[str], *, dry_run: bool, starts: bool, as_json: bool
) -> int:
    """Write the file, start what was added and print both. `known`: the servers that the file had before."""
    by_word: dict[str, list[str]] = {}
    for each in added:
        by_word.setdefault("replaced" if each.name in known else "added", []).append(each.name)
    why = "; ".join(f"{', '.join(names)} {word}" for word, names in by_word.items()) or "nothing added"
    lines = edits.differing_lines(own) if added else []
    kept = save_edit(own, why, "add") if added and not dry_run else None
    if not as_json and added:
        output.say(f"{edits.short(own.path)}{' would change' if dry_run else ''}: {why}", "bold")
        edits.show_lines(lines)
        for each in added:
            _say_notes(each)
    checks = (
        first_start.start(own.path, [each.name for each in added], as_json) if starts and not dry_run and added else []
    )
    if as_json:
        report = edits.edit_report(own, why, lines, kept)
        output.emit(
            {
                **report,
                "added": [each.name for each in added],
                "notes": [n for each in added for n in each.notes],
                "started": checks,
            }
        )
    elif added:
        edits.say_undo("add", own.path, dry_run=dry_run)
    return int(any(not each.is_well for each in checks))


def _say_notes(server: NewServer) -> None:
    for note in server.notes:
        output.say(f"Note: {note}", "yellow")
    for secret in pasted.plain_secrets(server.entry):
        output.say(
            f"Note: {secret} stands in the file as you typed it, and in the history of your shell. Better:"
            f" export it, and write '${{{pasted.slug(secret).replace('-', '_').upper()}}}' in its place (--replace).",
            "yellow",
        )

"""`foretool pin`: lists tools whatever the budget, says what that costs, and takes pins back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import Struct

from foretool.server import offline
from foretool.server.app import App
from foretool.server.catalog.names import SEPARATOR
from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option, refuse_together
from foretool.server.config.loader import Config, load
from foretool.server.config.servers import matches
from foretool.server.config.variables import is_pattern
from foretool.server.setup.own_servers import OwnServers, save_edit
from foretool.storage.records import ToolId


class PinnedTool(Struct, frozen=True):
    name: str
    tokens: int


class Pins(Struct, frozen=True):
    """What is pinned, and what that leaves of the list."""

    tools: tuple[PinnedTool, ...]
    tokens: int
    """Of all pinned tools together."""
    budget: int
    """The setting `list_tokens`."""
    over: dict[str, tuple[int, int]]
    """By profile, tokens of its pins and its budget where they exceed it; "" is the list without a profile."""
    unmatched: tuple[str, ...] = ()
    """What is pinned and fits no tool that is served."""
    unserved: dict[str, str] = {}
    """Of these, why a tool that is or was there is not served, and what to do."""


@click.command("pin")
@click.argument("patterns", nargs=-1, metavar="[TOOL...]")
@click.option("--remove", "is_removal", is_flag=True, help="Take these pins back, from the setting and from servers.")
@edits.dry_run_option
@edits.undo_option
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, patterns: tuple[str, ...], is_removal: bool, dry_run: bool, wanted_undo: bool
) -> int:
    """List tools always, whatever the budget, and say what that costs.

    TOOL is a name as `foretool tools` shows it, or a pattern of names ('git__*'). Without one, shows what is pinned.
    With --remove, TOOL is the name or the pattern that was pinned.
    """
    refuse_together(remove=is_removal, undo=wanted_undo)
    if wanted_undo:
        return edits.undo_latest(path, as_json, "pin", patterns, dry_run=dry_run)
    own = edits.open_file(path)
    config = load(path)
    if not patterns:
        if is_removal:
            raise click.UsageError("name at least one tool or pattern; foretool pin shows what is pinned")
        with offline.open_offline(config) as app:
            return output.show(count_pins(app), as_json, show_pins)
    change = _unpin if is_removal else _pin
    with offline.open_offline(config) as app, edits.errors_of(own.path):
        if problem := next(filter(None, (change(own, app, pattern) for pattern in patterns)), ""):
            return complain(f"pin: {problem}", WRONG)
    done = f"{', '.join(patterns)} {'unpinned' if is_removal else 'pinned'}"
    return finish_pins(own, done, config, dry_run=dry_run, as_json=as_json)


def _pin(own: OwnServers, app: App, pattern: str) -> str:
    """Pin a tool, or what a pattern fits. Returns why that cannot be done, or ""."""
    if not any(app.catalog.is_meant(tool, (pattern,)) for tool in app.catalog.tools()):
        waiting = _find_waiting(app, pattern)
        if not waiting:
            meant = offline.suggest_names(app, pattern) or "; foretool tools shows the names"
            return offline.why_unserved(app, pattern) or f"no tool is called or matches {pattern!r}{meant}"
        names = ", ".join(waiting)
        output.warn(f"{pattern!r} matches no tool that is known; not known yet are those of {names}")
    own.pin(pattern)
    return ""


def _find_waiting(app: App, pattern: str) -> list[str]:
    """Return the servers whose tools are not known yet and may fit a pattern, by what stands before their names."""
    if not is_pattern(pattern):
        return []
    start, separator, _ = pattern.partition(SEPARATOR)
    prefixes = {name: app.config.prefixes.get(name) or name for name in app.upstreams.unlisted()}
    return sorted(name for name, prefix in prefixes.items() if not separator or matches(prefix, (start,)))


def _unpin(own: OwnServers, app: App, pattern: str) -> str:
    """Take a pin back. Returns why that cannot be done, or ""."""
    places = _places(own, app, pattern)
    for server, written in places:
        own.unpin(written, server)
    return "" if places else _explain(own, app, pattern)


def _places(own: OwnServers, app: App, pattern: str) -> list[tuple[str, str]]:
    """Return where exactly this is pinned: the server ("" for our own setting), and the pattern as written there."""
    tool = app.catalog.get(ToolId(pattern))
    found = []
    for server, pins in own.pins().items():
        for each in pins:
            exposed = f"{app.config.prefixes.get(server) or server}__{each}"
            is_meant = tool is not None and tool.upstream == server and tool.name == each
            if (not server and each == pattern) or (server and (exposed == pattern or is_meant)):
                found.append((server, each))
    return found


def _explain(own: OwnServers, app: App, name: str) -> str:
    """Say why a pin cannot be taken back by this name."""
    tool = app.catalog.get(ToolId(name))
    for server, pins in own.pins().items():
        for each in pins:
            exposed = f"{app.config.prefixes.get(server) or server}__{each}" if server else each
            fits = tool is not None and matches(tool.name if server else tool.id, (each,))
            if tool is not None and fits and server in ("", tool.upstream):
                return f"{name} is pinned by the pattern {exposed!r}; take that back: foretool pin --remove '{exposed}'"
    return f"{name!r} is not pinned; foretool pin shows what is"


def finish_pins(own: OwnServers, why: str, config: Config, *, dry_run: bool, as_json: bool) -> int:
    """Write an edit of pins and print what the pins cost with it. Returns the exit status."""
    with offline.open_offline(edits.config_after(own, config)) as app:
        pins = count_pins(app)
    if as_json:
        lines = edits.differing_lines(own)
        kept = None if dry_run else save_edit(own, why, "pin")
        output.emit({**edits.edit_report(own, why, lines, kept), "pins": pins})
        return 0
    edits.finish_edit(own, why, "pin", dry_run=dry_run, as_json=False)
    show_pins(pins)
    return 0


def count_pins(app: App) -> Pins:
    """Count what is pinned in a catalog, and whether each list's budget holds it."""

    def cost(patterns: Sequence[str]) -> int:
        return sum(app.catalog.tokens(tool) for tool in app.catalog.pins(patterns))

    settings = app.config.settings
    tools = tuple(PinnedTool(tool, app.catalog.tokens(tool)) for tool in app.catalog.pins(settings.pin))
    costs = {name: (cost(each.pin), each.list_tokens) for name, each in app.config.profiles.items()}
    over = {name: each for name, each in costs.items() if each[0] > each[1]}
    unmatched = tuple(each for each in settings.pin if not app.catalog.pins((each,)))
    unserved = {each: why for each in unmatched if (why := offline.why_unserved(app, each))}
    return Pins(tools, cost(settings.pin), app.config.profiles[""].list_tokens, over, unmatched, unserved)


def show_pins(pins: Pins) -> None:
    """Print what is pinned and what it costs."""
    for why in pins.unserved.values():
        output.say(f"Pinned, and not served: {why}", "yellow")
    if unknown := [each for each in pins.unmatched if each not in pins.unserved]:
        output.say(f"Pinned, and no tool that is known is called so: {', '.join(unknown)}", "yellow")
    if not pins.tools and pins.unmatched:
        return
    if not pins.tools:
        output.say("No tool is pinned. To pin one: foretool pin TOOL (foretool tools shows the names)")
        return
    output.table(("pinned…", "tokens#"), [(each.name, f"{each.tokens:,}") for each in pins.tools])
    output.say(
        f"{output.plural(len(pins.tools), 'pinned tool')}, {pins.tokens:,} of the {pins.budget:,} tokens of the list."
    )
    for name, (cost, budget) in pins.over.items():
        whose = f"the list of profile {name}" if name else "the list"
        output.say(
            f"That is more than the budget: {whose} has {budget:,} tokens, its pins take {cost:,}. They are listed all"
            " the same, and nothing else is. Unpin some, or raise list_tokens.",
            "yellow",
        )

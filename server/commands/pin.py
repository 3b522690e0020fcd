"""`foretool pin`: lists tools whatever the budget, and says what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import Struct

from foretool.server import offline
from foretool.server.app import App
from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import Config, load
from foretool.server.config.servers import matches
from foretool.server.setup.own_servers import OwnServers


class PinnedTool(Struct, frozen=True):
    """A tool that is always listed."""

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


@click.command("pin")
@click.argument("patterns", nargs=-1, metavar="[TOOL...]")
@edits.dry_run_option
@edits.undo_option
@config_option
@json_option
def command(path: Path | None, as_json: bool, patterns: tuple[str, ...], dry_run: bool, wanted_undo: bool) -> int:
    """List tools always, whatever the budget, and say what that costs.

    TOOL is a name as `foretool tools` shows it, or a pattern of names ('git__*'). Without one, shows what is pinned.
    """
    if wanted_undo:
        return edits.undo(path, as_json)
    own = edits.open_file(path)
    config = load(path)
    if not patterns:
        with offline.read(config) as app:
            return output.show(count_pins(app), as_json, show_pins)
    with offline.read(config) as app:
        known: list[str] = [tool.id for tool in app.catalog.tools()]
        for pattern in patterns:
            if not any(matches(name, (pattern,)) for name in known):
                if is_pattern(pattern) and app.upstreams.unlisted():
                    names = ", ".join(sorted(app.upstreams.unlisted()))
                    output.warn(f"{pattern!r} matches no tool that is known; not known yet are those of {names}")
                    continue
                meant = offline.suggest(app, pattern) or "; foretool tools shows the names"
                return complain(f"pin: no tool is called or matches {pattern!r}{meant}", WRONG)
    with edits.errors_of(own.path):
        for pattern in patterns:
            own.pin(pattern)
    return finish(own, f"{', '.join(patterns)} pinned", "pin", config, dry_run=dry_run, as_json=as_json)


def is_pattern(name: str) -> bool:
    """Tell whether a name holds marks of a pattern."""
    return any(mark in name for mark in "*?[")


def finish(own: OwnServers, why: str, command: str, config: Config, *, dry_run: bool, as_json: bool) -> int:
    """Write an edit of pins and print what the pins cost with it. Returns the exit status."""
    with offline.read(edits.config_after(own, config)) as app:
        pins = count_pins(app)
    if as_json:
        lines = edits.differing_lines(own)
        kept = edits.save(own, why, dry_run=dry_run)
        output.emit({**edits.report(own, why, lines, kept), "pins": pins})
        return 0
    edits.finish(own, why, command, dry_run=dry_run, as_json=False)
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
    return Pins(tools, cost(settings.pin), settings.list_tokens, over)


def show_pins(pins: Pins) -> None:
    """Print what is pinned and what it costs."""
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

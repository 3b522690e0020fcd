"""`foretool misses fix`: changes the config so that a missed tool is listed, and says what that does before."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option
from foretool.server.config.loader import load
from foretool.storage.records import Miss

MOST_MISSES: Final = 1000
"""How many of the latest misses the effect is counted on."""


@click.command("fix")
@click.argument("id", type=int, required=False)
@click.option("--yes", "-y", "agreed", is_flag=True, help="Ask nothing.")
@edits.dry_run_option
@edits.undo_option
@config_option
def fix(path: Path | None, id: int | None, agreed: bool, dry_run: bool, wanted_undo: bool) -> int:
    """Pin the tool of a miss, so that every list has it.

    Says first what that costs, and how many of the misses on record are of tools that the list gains. A miss that a pin
    cannot help, such as a denied tool, is told what does help.
    """
    if wanted_undo:
        return edits.undo(path, False)
    if id is None:
        raise click.UsageError("name the number of a miss, or add --undo; `foretool misses --all` lists them")
    from foretool.server import offline  # 0.3 s of imports that `foretool misses` does without

    own, config = edits.open_file(path), load(path)
    with offline.read(config) as app:
        miss = app.store.calls.miss(id)
        if miss is None:
            return complain(f"misses fix: there is no miss {id}; `foretool misses --all` lists all misses", WRONG)
        tool = app.catalog.find(miss.tool) if miss.tool else None
        if tool is None or miss.cause == "denied":
            return complain(f"misses fix: a pin does not help: {_say_other_way(miss)}", WRONG)
        before = offline.view(app, config.profiles[""])
        recent = app.store.calls.misses(limit=MOST_MISSES)
    if tool.id in before.shown:
        output.say(f"{tool.id} is in the list by now; nothing has to change.")
        return 0
    with edits.errors_of(own.path):
        own.pin(tool.id)
    with offline.read(edits.config_after(own, config)) as app:
        after = offline.view(app, app.config.profiles[""])
    if tool.id not in after.shown:
        return complain(f"misses fix: a pin of {tool.id} would not list it; foretool explain says what else", WRONG)
    gained = sum(each.tool in after.shown and each.tool not in before.shown for each in recent)
    output.say(f"Pinning {tool.id} makes the list {after.tokens:,} tokens instead of {before.tokens:,}.")
    output.say(f"Of the latest {output.plural(len(recent), 'miss')}, {gained} were of tools that the list gains.")
    if lost := sorted(before.shown - after.shown):
        output.say(f"It leaves the list: {', '.join(lost)}", "yellow")
    if not (agreed or dry_run):
        if not sys.stdin.isatty():
            raise click.UsageError("there is nobody to ask: add --yes, or --dry-run to change nothing")
        if not click.confirm("Pin it?"):
            output.say("Nothing was changed.")
            return WRONG
    return edits.finish(own, f"{tool.id} pinned", "misses fix", dry_run=dry_run, as_json=False)


def _say_other_way(miss: Miss) -> str:
    return miss.change or "it is not known which tool was needed; foretool misses show tells the conversation"

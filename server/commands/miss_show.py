"""`foretool misses show`: one miss in full, with the conversation around it."""

from __future__ import annotations

from pathlib import Path

import click

from foretool.server.commands.options import config_option, json_option


@click.command("show")
@click.argument("id", type=int)
@click.option("--no-replay", is_flag=True, help="Do not play recorded tasks to see what each change would have done.")
@config_option
@json_option
def show(path: Path | None, as_json: bool, id: int, no_replay: bool) -> int:
    """Show one miss in full, and what would have shown its tool.

    That is the conversation, the list, and why the tool was not in it.

    Each change that would have shown the tool is tried on the latest tasks on record, as foretool replay does: on as
    many of the latest 100 as a quarter of a second allows, at least 5. `foretool misses fix` tries it on all 100.
    """
    from foretool.server.commands.miss_details import show_miss  # 0.3 s of imports that `foretool misses` does without

    return show_miss(path, id, replays=not no_replay, as_json=as_json)

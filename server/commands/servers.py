"""`foretool remove`, `enable` and `disable`: edits of servers' entries in the config."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from foretool.server.commands import edits
from foretool.server.commands.options import config_option, json_option
from foretool.server.setup.own_servers import OwnServers


def _edits(
    name: str, edit: Callable[[OwnServers, str], None], done: str
) -> Callable[[Callable[[], None]], click.Command]:
    """Make a command of a function whose docstring is its help. `done`: what became of the servers, in one word."""

    def decorate(described: Callable[[], None]) -> click.Command:
        @click.argument("names", nargs=-1, metavar="NAME...")
        @edits.dry_run_option
        @edits.undo_option
        @config_option
        @json_option
        def run(path: Path | None, as_json: bool, names: tuple[str, ...], dry_run: bool, wanted_undo: bool) -> int:
            if wanted_undo:
                return edits.undo_latest(path, as_json)
            own = edits.open_file(path)
            edits.require_names(own, names)
            with edits.errors_of(own.path):
                for each in names:
                    edit(own, each)
            return edits.finish_edit(own, f"{', '.join(names)} {done}", name, dry_run=dry_run, as_json=as_json)

        return click.command(name, help=described.__doc__)(run)

    return decorate


@_edits("remove", OwnServers.remove_server, "removed")
def remove() -> None:
    """Take servers out of the config.

    What is on record of their tools stays; `foretool forget` deletes it. To keep the entry, use `foretool disable`.
    """


@_edits("enable", partial(OwnServers.switch, on=True), "enabled")
def enable() -> None:
    """Switch servers on that are disabled.

    Their entries lose "disabled". Running proxies start them at once.
    """


@_edits("disable", partial(OwnServers.switch, on=False), "disabled")
def disable() -> None:
    """Switch servers off without deleting their entries.

    Their entries get "disabled": true. Running proxies stop them at once.
    """

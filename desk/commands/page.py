"""`foretool page`: shows misses, tools, sessions and what was learned in a browser, and reviews changes there."""

from __future__ import annotations

from pathlib import Path

import click

from foretool.desk.commands.replay import VERDICTS
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option
from foretool.server.config.loader import load
from foretool.server.ledger.conditions import CONDITIONS
from foretool.server.ledger.story import CAUSES, NOTICED
from foretool.server.system import interrupts
from foretool.storage.opening import open_existing_store


@click.command("page")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="NUMBER",
    help="Listen on this port; 0 takes a free one.",
)
@click.option("--behind", hidden=True, metavar="FILE", help="Serve a proxy on this socket.")
@config_option
def command(path: Path | None, port: int, behind: str | None) -> int:
    """Show misses, tools and sessions in a browser; review changes.

    Prints a link that works once, within five minutes, for one browser. Nobody else on the machine can open the page.
    It changes something only at the press of a button. Ctrl-C ends it.
    """
    from foretool.desk.page.rendering import Words
    from foretool.desk.page.serving import serve_behind, serve_page

    words = Words(CAUSES, NOTICED, CONDITIONS, VERDICTS)
    if behind is not None:
        interrupts.run(serve_behind(load(path), words, behind, click.echo))
        return 0

    def tell(link: str) -> None:
        click.echo(f"{link}\nOpen this link in a browser; it works once. Ctrl-C ends the page.")

    config = load(path)
    with open_existing_store(config.storage):
        pass  # one that cannot be used is said here, and not on each page
    try:
        interrupts.run(serve_page(config, words, port, tell))
    except OSError as error:
        return complain(f"page: port {port} cannot be had ({error.strerror}); choose another with --port", WRONG)
    return 0

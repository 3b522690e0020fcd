"""`foretool export-priors`: writes what was learned into a file that another store reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click
from msgspec import Struct

from foretool.retrieval import portable_priors
from foretool.server import offline
from foretool.server.commands import output
from foretool.server.commands.exit import USAGE, WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load


class WrittenPriors(Struct, frozen=True):
    """What was written."""

    file: Path
    servers: int
    tools: int
    followed: int
    """Pairs of tools that followed each other."""
    tasks: int
    people: int
    """At least so many people stand behind each count."""
    bytes: int


@click.command("export-priors")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option
@json_option
def command(path: Path | None, file: Path, as_json: bool) -> int:
    """Write what was learned into FILE, for another machine.

    FILE gets names of servers, tools and parameters, how often each tool was called, and which one followed which: no
    texts, no arguments, no results. Where several people share the store, only what at least `share_words` of them
    used is counted. FILE must not exist.

    \b
    foretool export-priors team.json
    """
    config = load(path)
    with offline.read(config) as app:
        from foretool.learning.portable import gather

        priors = gather(app.store, app.catalog, config.settings.share_words, time.time())
    if not priors.tools:
        shared = f" that {priors.people} people use" if priors.people > 1 else ""
        return complain(
            f"export-priors: no calls of tools{shared} are on record in {config.storage};"
            " `foretool status` says what is",
            WRONG,
        )
    data = portable_priors.write(priors)
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "wb") as out:
            out.write(data)
    except FileExistsError:
        return complain(f"export-priors: {file} exists; name another file, or remove it first")
    except OSError as error:
        return complain(f"export-priors: {file}: {error.strerror}; name another file", USAGE)
    servers = len({tool.server for tool in priors.tools})
    written = WrittenPriors(
        file, servers, len(priors.tools), len(priors.followed), priors.tasks, priors.people, len(data)
    )
    return output.show(written, as_json, _print)


def _print(written: WrittenPriors) -> None:
    tools = f"{output.plural(written.tools, 'tool')} of {output.plural(written.servers, 'server')}"
    pairs = output.plural(written.followed, "pair")
    output.say(f"{written.file}: {tools} and {pairs} of tools, counted in {output.plural(written.tasks, 'task')}.")
    if written.people > 1:
        output.say(f"Each was used by at least {written.people} people.")
    output.say(f"It has no texts and no arguments. Elsewhere: foretool import-priors {written.file.name}")

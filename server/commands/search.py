"""`foretool search`: shows what `discover_tools` would answer, and why, from the stored catalog."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import click
from msgspec import Struct

from foretool.server import offline, probing
from foretool.server.app import App
from foretool.server.catalog import embedding, models
from foretool.server.commands import output
from foretool.server.commands.options import config_option, json_option, profile_option
from foretool.server.config.loader import Config, Profile, load
from foretool.server.lists.own_tools import MOST
from foretool.server.methods import discovery_arguments
from foretool.server.methods.discover_tools import RANKED
from foretool.server.methods.discovery_arguments import Arguments
from foretool.server.system.logs import mute_logging
from foretool.storage.opening import open_store
from foretool.storage.records import Level, Match
from foretool.storage.stores import StorageError

Schema = Literal["whole", "trimmed", "none"]

LIST_S: Final = 20.0
"""How long a server may take to start and list its tools before the search goes on without them."""


class Hit(Struct, frozen=True):
    """One match: what the answer says about it, and how it was ranked."""

    rank: int
    tool: str
    score: float
    parts: dict[str, float]
    why: str
    listed: bool
    schema: Schema
    """How much of its schema the answer contains."""
    description: str
    bridge: str
    """Which of our tools calls it."""


class SearchResult(Struct, frozen=True):
    """An answer of `discover_tools`, and the ranking behind it."""

    task: str
    profile: str
    confidence: Level
    tokens: int
    """Size of the answer."""
    took_ms: float
    fitting: int
    """How many tools match at all, in every profile."""
    matches: tuple[Hit, ...]
    answer: str
    """The text that the model reads."""


@click.command("search")
@click.argument("task", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(1, MOST), help="Show at most this many matches.  [default: as many as a client gets]"
)
@click.option("--text", "as_text", is_flag=True, help="Print the answer as the model reads it.")
@profile_option
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, profile: str, task: tuple[str, ...], limit: int | None, as_text: bool
) -> int:
    """Show what discover_tools would answer to TASK, and why.

    Put several needs on separate lines: quote TASK and break the lines. Records nothing. Starts only servers whose
    tools are not known yet, keeps what they list, and waits for none that failed lately. Embeds up to 300 new tools, as
    a proxy does in the background.
    """
    with open_search(path, profile) as (app, shown_to), output.waiting("searching"):
        found = search(app, " ".join(task), shown_to, limit)
        say_without_encoders(app)
    return output.show(found, as_json, lambda found: output.say_lines(found.answer) if as_text else _print(found))


def say_without_encoders(app: App) -> None:
    """Say on stderr that words alone rank, where the user has not chosen that."""
    if app.search.encoders is None and len(app.catalog) and app.config.settings.encoder != "none":
        output.warn("words alone rank; `foretool status` says why")


@contextmanager
def open_search(
    path: Path | None, profile: str, *, may_be_empty: bool = False
) -> Iterator[tuple[App, Profile]]:  # fmt: skip
    """Build an application that ranks as a proxy does, and the profile it ranks for. `path` is that of `--config`.

    Starts the servers whose tools are not known yet, unless they are known to fail. Raises `ClickException` if no tool
    is known after that, unless it `may_be_empty`.
    """
    config = load(path)
    shown_to = config.require_profile(profile)
    unlisted = _list_unknown(config, shown_to)
    with offline.read(config) as app:
        if not len(app.catalog) and not may_be_empty:
            raise click.ClickException("no tools are known yet; run `foretool doctor` to see why")
        if unlisted:
            output.warn(f"no tools of {', '.join(unlisted)}; `foretool list` says why")
        models.install_wordings(app.search, app.store)
        new = embedding.install_encoders(config.settings, app.search, app.store, app.catalog)
        _keep_vectors(config, new)
        for problem in models.install_models(app.search, app.store):
            output.warn(problem)
        yield app, shown_to


def _keep_vectors(config: Config, new: Mapping[str, Mapping[bytes, bytes]]) -> None:
    """Keep vectors by encoder, so that neither the next command nor a proxy computes them again."""
    # A store that cannot be written leaves the search as it is.
    with contextlib.suppress(StorageError):
        if new:
            with open_store(config.storage) as store:
                for encoder, vectors in new.items():
                    store.vectors.save(encoder, vectors)


def _list_unknown(config: Config, profile: Profile) -> list[str]:
    """List the tools of servers that were never listed, and say so on stderr. Returns the servers that did not list."""

    def announce(names: list[str]) -> None:
        output.warn(f"listing the tools of {output.plural(len(names), 'server')} first: {', '.join(names)}")

    # `foretool list` says in better words what is wrong.
    with mute_logging(), output.waiting("waiting for the lists of tools"):
        return probing.list_unknown(config, profile, LIST_S, announce)


def search(app: App, task: str, profile: Profile, limit: int | None) -> SearchResult:
    """Search as for the first request of a client."""
    arguments = Arguments(task=task, limit=limit)
    visible = offline.view(app, profile).shown
    started = time.perf_counter()
    query = discovery_arguments.query(arguments, (), (), profile.name)
    reach = app.policy.reach(profile)
    ranking = app.search.find_now(query, reach.finds, max(RANKED, arguments.wanted))
    answer, _ = app.answers.write(arguments, query, ranking, visible.__contains__, reach)
    took_ms = (time.perf_counter() - started) * 1000
    cards = {card["name"]: card for card in answer.structured["matches"]}
    for card in answer.structured["matches"]:
        cards |= {name: {"why": card["why"], "description": f"as {card['name']}"} for name in card.get("same", ())}
    hits = tuple(
        _describe_hit(match, cards[match.tool], reach.verdict(tool).bridge)
        for match in answer.matches
        if match.tool in cards and (tool := app.catalog.get(match.tool)) is not None
    )
    return SearchResult(task, profile.name, answer.level, answer.tokens, took_ms, ranking.total, hits, answer.text)


def _describe_hit(match: Match, card: dict[str, Any], bridge: str) -> Hit:
    schema: Schema = "none" if "inputSchema" not in card else "trimmed" if "trimmed" in card else "whole"
    listed = card.get("listed", False)
    return Hit(
        match.rank, match.tool, match.score, match.parts, card["why"], listed, schema, card["description"], bridge
    )


def _print(found: SearchResult) -> None:
    rows = [
        (
            hit.rank, hit.tool + (" (listed)" if hit.listed else ""), f"{hit.score:.2f}",
            output.score_parts(hit.parts), hit.why, hit.schema, hit.description,
        )
        for hit in found.matches
    ]  # fmt: skip
    if rows:
        output.table(("#", "tool…", "score#", "parts…", "why…", "schema", "description…"), rows)
    else:
        output.say_lines(found.answer)
    output.say(
        f"confidence {found.confidence}; {output.plural(found.fitting, 'matching tool')}, {len(found.matches)} of them"
        f" in the answer ({found.tokens:,} tokens, {found.took_ms:.1f} ms)"
    )

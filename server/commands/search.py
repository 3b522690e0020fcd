"""`foretool search`: what `discover_tools` would answer, why it shows these tools, and why not another one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import click
from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.ranking import Query, Ranked, task_lines
from foretool.server import offline, probing
from foretool.server.app import App
from foretool.server.catalog import embedding, models
from foretool.server.catalog.search import RANKED
from foretool.server.catalog.signatures import input_schema
from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option, profile_option
from foretool.server.config.loader import Config, Profile, load
from foretool.server.discovery import arguments as discovery_arguments
from foretool.server.discovery.arguments import MOST, Arguments
from foretool.server.ledger.story import CAUSES
from foretool.server.lists.hidden import HiddenTools
from foretool.server.lists.maker import View
from foretool.server.methods.skills import SkillOffer
from foretool.server.offline import find_wordings
from foretool.server.protocol.apps import is_for_model
from foretool.server.recording.calibration import read_calibration
from foretool.server.system import interrupts
from foretool.server.system.logs import mute_logging
from foretool.server.trust.policy import FOR_ITS_PAGE
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store
from foretool.storage.records import Cause, Exposure, Level, Match, Miss, MissFilter, Tool
from foretool.storage.store import Store

Schema = Literal["whole", "trimmed", "none"]

_FIRST: Final = 5
"""So many matches are shown with what they do, the others by name."""
_LIST_S: Final = 20.0
"""How long a server may take to start and list its tools before the search goes on without them."""


class ExplainedMatch(Struct, frozen=True):
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
    input_schema: dict[str, Any]
    """What a call of it takes, whole."""


class FoundSkill(Struct, frozen=True):
    """A skill of the user that fits the task."""

    name: str
    description: str
    file: str
    """Its `SKILL.md`."""


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
    unlisted = [*_list_unknown(config, shown_to), *(name for name in config.wrong if shown_to.admits(name))]
    with offline.open_offline(config) as app:
        if not len(app.catalog) and not may_be_empty:
            raise click.ClickException("no tools are known yet; run `foretool doctor` to see why")
        if unlisted:
            output.warn(f"no tools of {', '.join(unlisted)}; `foretool list` says why")
        models.install_wordings(app.search, app.store)
        new = embedding.install_encoders(config.settings, app.search, app.store, app.catalog)
        _keep_vectors(config, new)
        for problem in models.install_models(app.search, app.store):
            output.warn(problem)
        app.search.install_calibration(read_calibration(app.store.discoveries).map)
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
        return probing.list_unknown(config, profile, _LIST_S, announce)


class _Shell(Struct):
    """Whoever asks in a terminal, as a reader of skills."""

    info: dict[str, Any] = {}
    transport: str = "stdio"
    folder: str = ""
    principal: str = ""


async def find_skills(app: App, task: str, profile: Profile) -> list[SkillOffer]:
    """Return the skills of the user that fit a task, best first, as a client of this folder finds them."""
    shell, skills, ready = _Shell(folder=str(Path.cwd())), app.answering.skill_search, asyncio.Event()
    skills.when_embedded(shell, profile, ready.set)
    await ready.wait()
    return skills.find(task_lines(task), shell, profile)


def search_once(
    app: App, task: str, profile: Profile, limit: int | None, skills: Sequence[SkillOffer] = ()
) -> SearchResult:
    """Search as for the first request of a client. `skills`: those that fit, best first."""
    arguments = Arguments(task=task, limit=limit)
    visible = offline.view(app, profile).shown
    started = time.perf_counter()
    query = discovery_arguments.query(arguments, (), (), profile.name)
    reach = app.policy.reach(profile)
    ranking = app.search.find_now(query, reach.finds, max(RANKED, arguments.wanted))
    answer, _ = app.answering.answers.write(arguments, query, ranking, visible.__contains__, reach, skills=skills)
    took_ms = (time.perf_counter() - started) * 1000
    cards = {card["name"]: card for card in answer.structured["matches"]}
    for card in answer.structured["matches"]:
        cards |= {name: {"why": card["why"], "description": f"as {card['name']}"} for name in card.get("same", ())}
    hits = tuple(
        _describe_hit(match, cards[match.tool], tool, reach.verdict(tool).bridge)
        for match in answer.matches
        if match.tool in cards and (tool := app.catalog.get(match.tool)) is not None
    )
    own = tuple(FoundSkill(each.name, each.description, str(Path(each.folder, "SKILL.md"))) for each in skills)
    return SearchResult(task, profile.name, answer.level, answer.tokens, took_ms, ranking.total, hits, own, answer.text)


def _describe_hit(match: Match, card: dict[str, Any], tool: Tool, bridge: str) -> ExplainedMatch:
    schema: Schema = "none" if "inputSchema" not in card else "trimmed" if "trimmed" in card else "whole"
    listed = card.get("listed", False)
    takes = input_schema(tool.definition)
    return ExplainedMatch(
        match.rank, match.tool, match.score, match.parts, card["why"], listed, schema, card["description"], bridge,
        takes,
    )  # fmt: skip


_LATEST: Final = 1000
"""Among so many latest misses those of a task are looked for."""
_SESSIONS: Final = 100
"""Among so many latest sessions the latest list of a profile is looked for."""
_LISTS: Final = ("list", "growth", "epoch")
"""What a list of a client is recorded for."""


_VAIN: Final = ("nothing_found", "search")
"""What reveals misses that are searches."""


class Reason(Struct, frozen=True):
    """One thing that brings a tool to a client or keeps it away."""

    what: str
    do: str = ""
    """What changes it, or ""."""


class ToolExplanation(Struct, frozen=True):
    """Why one tool is shown for a task, or why it is not."""

    tool: str
    shown: bool
    """Whether the answer of the search has it."""
    listed: bool
    """Whether the client has it without a search: its list defines it, or names it with what a call takes."""
    rank: int
    """Its place for this task; 0 if nothing of the task fits it."""
    of: int
    """How many tools fit the task at all."""
    score: float
    parts: dict[str, float]
    """What each ranker added to the score."""
    last_shown: float | None
    """The score of the last tool that the answer shows; null if it shows none."""
    cause: Cause | None
    """Why a client of this profile would miss the tool, as the ledger names it; null if it would not."""
    reasons: tuple[Reason, ...]


class MissedBefore(Struct, frozen=True):
    """The misses on record with one cause: of the tool that was asked for, or of searches for this task in vain."""

    cause: Cause
    count: int
    last_at: float
    last_id: int


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
    matches: tuple[ExplainedMatch, ...]
    skills: tuple[FoundSkill, ...]
    """Those of the user; a server's are known while it runs, and stand in what its clients find."""
    answer: str
    """The text that the model reads."""
    asked: ToolExplanation | None = None
    """What was asked with `--tool`."""
    missed: tuple[MissedBefore, ...] = ()
    """Misses on record, the cause of the last one first."""


@click.command("search")
@click.argument("task", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(1, MOST), help="Show at most this many matches.  [default: as many as a client gets]"
)
@click.option("--text", "as_text", is_flag=True, help="Print the answer as the model reads it.")
@click.option("--why", "wants_why", is_flag=True, help="Show all matches, and what put each at its place.")
@click.option("--tool", "name", default="", metavar="NAME", help="Say why this tool is shown, or why not.")
@profile_option
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, profile: str, task: tuple[str, ...], limit: int | None, as_text: bool,
    wants_why: bool, name: str,
) -> int:  # fmt: skip
    """Show what discover_tools would answer to TASK, and why.

    Put several needs on separate lines: quote TASK and break the lines. Records nothing. Starts only servers whose
    tools are not known yet, and waits for none that failed lately.

    \b
    foretool search "what time is it in Tokyo"
    foretool search "what time is it in Tokyo" --tool git__git_log
    """
    words = " ".join(task)
    if not words.strip():
        raise click.UsageError("TASK is empty; say in words what is to be done.")
    with open_search(path, profile, may_be_empty=bool(name)) as (app, shown_to), output.waiting("searching"):
        found = search_once(app, words, shown_to, limit, interrupts.run(find_skills(app, words, shown_to)))
        say_without_encoders(app)
        asked: ToolExplanation | None = None
        if not name:
            missed = read_vain_searches(app.store, shown_to.name, words)
        elif (tool := app.catalog.find(name)) is not None:
            missed = misses_of_tool(app.store, shown_to.name, tool.id)
            asked = explain_tool(app, found, tool, shown_to)
        else:
            before = map(_say_missed, misses_of_tool(app.store, shown_to.name, name))
            return complain(f"search: {'; '.join([offline.say_unknown(app, name), *before])}", WRONG)
    if as_text:
        output.say_lines(found.answer)
        return 0
    return output.show(replace(found, asked=asked, missed=missed), as_json, partial(_print, is_whole=wants_why))


def misses_of_tool(store: Store, profile: str, name: str) -> tuple[MissedBefore, ...]:
    """Return the misses of one tool in one profile, by cause, the latest first."""
    counts = store.calls.count_misses(MissFilter(tool=name, profile=profile))
    own = [MissedBefore(each.cause, each.count, each.last_at, each.last_id) for each in counts if each.tool == name]
    return tuple(sorted(own, key=lambda each: -each.last_at))


def read_vain_searches(store: Store, profile: str, task: str) -> tuple[MissedBefore, ...]:
    """Return the misses among the latest ones that are searches for this task in vain, by cause, the latest first."""
    found: dict[Cause, list[Miss]] = {}
    for miss in store.calls.find_misses(MissFilter(profile=profile), _LATEST):
        if (not miss.tool or miss.noticed in _VAIN) and miss.query.split() == task.split():
            found.setdefault(miss.cause, []).append(miss)
    return tuple(MissedBefore(cause, len(own), own[0].at, own[0].id) for cause, own in found.items())


def explain_tool(app: App, found: SearchResult, tool: Tool, profile: Profile) -> ToolExplanation:
    """Say where a tool stands for the task of a search, and what keeps it from the client."""
    reach = app.policy.reach(profile)
    query = Query(lines=task_lines(found.task), profile=profile.name)
    ranking = app.search.find_now(query, lambda each: reach.finds(each) or each.id == tool.id, len(app.catalog))
    rank = ranking.rank_of(tool.id)
    ranked = ranking.ranked[rank - 1] if rank else Ranked(tool.id, 0.0)
    view = offline.view(app, profile)
    shown = {hit.tool for hit in found.matches}
    last = min((hit.score for hit in found.matches), default=None)
    is_shown = tool.id in shown
    cause: Cause | None = None
    if refused := _say_policy(app, tool, profile):
        cause, reasons = "denied", refused
    else:
        cause, listed = _say_lists(app, view, tool, profile)
        reasons = [*_say_rank(tool, ranked, rank, last, found, is_shown=is_shown), *listed]
    shipped = app.live.settings.shipped_wordings
    if wordings := find_wordings(app.catalog, app.store, tool, with_shipped=shipped):
        said = "; ".join(wordings.texts)
        reasons.append(Reason(f"ranked with wordings {wordings.origin}, not by the server: {said}"))
    is_listed = tool.id in view.shown or tool.id in view.named
    return ToolExplanation(
        tool.id, is_shown, is_listed, rank, ranking.total, ranked.score, ranked.parts, last, cause, tuple(reasons)
    )


def _say_policy(app: App, tool: Tool, profile: Profile) -> list[Reason]:
    """Return what keeps calls of a tool from every client of a profile; nothing if nothing does."""
    reach = app.policy.reach(profile)
    if not reach.admits(tool.upstream):
        what = f"profile {profile.name!r} does not have its server {tool.upstream!r} (denied)"
        return [Reason(what, f"add {tool.upstream!r} to the servers of this profile")]
    if not is_for_model(tool.definition):
        return [Reason(f"{FOR_ITS_PAGE} (denied)")]
    verdict = reach.verdict(tool)
    return [Reason(f"a rule denies it (denied): {verdict.denied}", verdict.lift)] if verdict.denied else []


def _say_rank(
    tool: Tool, ranked: Ranked, rank: int, last: float | None, found: SearchResult, *, is_shown: bool
) -> list[Reason]:
    if not rank:
        what = (
            "nothing of the task fits it: its name, description and parameters have none of the words that tell tools"
            " apart"
        )
        do = f"say what it is for in the config: the setting description of server {tool.upstream!r}"
        return [Reason(what, do)]
    why = f" ({'; '.join(ranked.reasons)})" if ranked.reasons else ""
    if is_shown:
        return [Reason(f"the search shows it at place {rank}{why}")]
    if last is None:
        what = f"the search is too unsure to show a tool; this one is at place {rank} with {ranked.score:.2f}{why}"
        return [Reason(what, "describe the task in the words of the tool")]
    count = len(found.matches)
    what = f"the search shows {output.plural(count, 'tool')}, down to a score of {last:.2f}; this one is at place"
    what = f"{what} {rank} with {ranked.score:.2f}{why}"
    return [Reason(what, f"search for more with limit, or ask for names: {tool.id}")]


def _say_lists(app: App, view: View, tool: Tool, profile: Profile) -> tuple[Cause | None, list[Reason]]:
    """Say why lists lack a tool: the one that the latest client has, and that of the next one."""
    cause: Cause | None = None
    said: list[Reason] = []
    is_listed, is_named = tool.id in view.shown, tool.id in view.named
    got = read_last_list(app.store, profile.name)
    if got is not None and tool.id not in got.tools:
        if not was_known(app, tool, got):
            cause = "offline"
        elif is_listed or (is_named and not is_named_in(app.store, got, tool)):
            cause = "stale"
    if got is not None and cause is not None:
        what = f"the list that a client got {output.ago(got.at)} lacks it ({cause}): {CAUSES[cause]}"
        said.append(Reason(what, "have the client list its tools again, or start it again"))
    whose = "the next list" if got is None else "the client's list"
    if is_listed:
        new = "the next list has it" if cause else f"{whose} has it, so no search is needed"
        return cause, [*said, Reason(new)]
    if is_named:
        new = "the next list names it" if cause else f"{whose} names it, so no search is needed"
        return cause, [*said, Reason(f"{new}: it stands in the descriptions of the bridges with what a call takes")]
    why = HiddenTools(app.lists).why(view, tool.id, tool.upstream)
    what = "the next list lacks it too" if cause else f"{whose} lacks it"
    change = why.change.replace("none: ", "nothing: ", 1) if why.change.startswith("none: ") else why.change
    return cause or why.cause, [*said, Reason(f"{what} ({why.cause}): {CAUSES[why.cause]}", change)]


def read_last_list(store: Store, profile: str) -> Exposure | None:
    """Return the list that the latest client of a profile has; None if it is gone or has none."""
    for session in store.sessions.recent(_SESSIONS):
        if session.profile == profile:
            lists = [each for each in store.sessions.exposures(session.key) if each.reason in _LISTS]
            return lists[-1] if lists and session.ended_at is None else None
    return None


def is_named_in(store: Store, got: Exposure, tool: Tool) -> bool:
    """Return whether a list that a client has names a tool."""
    named = (each for each in store.sessions.exposures(got.session) if each.reason == "named" and each.at == got.at)
    return any(tool.id in each.tools for each in named)


def was_known(app: App, tool: Tool, got: Exposure) -> bool:
    """Return whether any tool of its server was known when a list was made."""
    own = app.catalog.now.server(tool.upstream).in_order
    if not {each.id for each in own}.isdisjoint(got.tools):
        return True
    names = dict.fromkeys((tool.name, *(each.name for each in own)))
    versions = app.store.catalog.versions
    return any(each.first_seen <= got.at for name in names for each in versions(tool.upstream, name))


def _say_missed(missed: MissedBefore) -> str:
    times = output.plural(missed.count, "miss")
    return (
        f"{times} on record, the last one {output.ago(missed.last_at)} ({missed.cause}): {CAUSES[missed.cause]};"
        f" foretool misses {missed.last_id} has it in full"
    )


def _print(found: SearchResult, *, is_whole: bool) -> None:
    """Print the first matches; if `is_whole`, all of them with their scores."""
    if not found.matches:
        output.say_lines(found.answer)
    elif is_whole:
        rows = [
            (hit.rank, _name(hit), hit.description, hit.why, hit.schema, f"{hit.score:.2f}",
             output.score_parts(hit.parts))
            for hit in found.matches
        ]  # fmt: skip
        output.table(("#", "tool…", "description…", "why…", "schema", "score#", "parts…"), rows)
    else:
        first, others = found.matches[:_FIRST], found.matches[_FIRST:]
        output.table(("#", "tool…", "description…"), [(hit.rank, _name(hit), hit.description) for hit in first])
        if others:
            names = ", ".join(hit.tool for hit in others)
            output.say_paragraph(f"and {names}. With scores and reasons: --why", "  ", "  ", "dim")
    for skill in found.skills:
        output.say(f"skill {skill.name}: {skill.description} ({edits.short(Path(skill.file))})")
    output.say(
        f"confidence {found.confidence}; {output.plural(found.fitting, 'matching tool')}, {len(found.matches)} of them"
        f" in the answer ({found.tokens:,} tokens, {found.took_ms:.1f} ms)"
    )
    if found.asked is not None:
        _print_tool(found.asked)
    for missed in found.missed:
        what, _, do = _say_missed(missed).partition("; ")
        output.say(f"  {what}")
        output.say(f"    -> {do}")


def _name(hit: ExplainedMatch) -> str:
    return f"{hit.tool} (listed)" if hit.listed else hit.tool


def _print_tool(asked: ToolExplanation) -> None:
    place = f"place {asked.rank} of {asked.of}" if asked.rank else "not among them"
    output.say(f"\n{asked.tool}: {place}", "bold")
    if asked.parts:
        output.say(f"  score {asked.score:.2f}: {output.score_parts(asked.parts)}", "dim")
    for reason in asked.reasons:
        output.say(f"  {reason.what}")
        if reason.do:
            output.say(f"    -> {reason.do}")

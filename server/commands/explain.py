"""`foretool explain`: why a search shows the tools that it shows, and why not another one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from foretool.retrieval.ranking import Query, Ranked
from foretool.server import offline
from foretool.server.app import App
from foretool.server.catalog.wordings import find_wordings
from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option, profile_option
from foretool.server.commands.search import SearchResult, open_search, say_without_encoders, search
from foretool.server.config.loader import Profile
from foretool.server.ledger.miss_words import CAUSES
from foretool.server.lists.hidden import HiddenTools
from foretool.server.lists.maker import View
from foretool.server.protocol.apps import is_for_model
from foretool.server.trust.policy import FOR_ITS_PAGE
from foretool.storage.records import Cause, Exposure, Miss, MissFilter, Tool
from foretool.storage.stores import Store

LATEST: Final = 1000
"""Among so many latest misses those of a task are looked for."""
SESSIONS: Final = 100
"""Among so many latest sessions the latest list of a profile is looked for."""
LISTS: Final = ("list", "growth", "epoch")
"""What a list of a client is recorded for."""


VAIN: Final = ("nothing_found", "search")
"""What reveals misses that are searches."""


class Reason(Struct, frozen=True):
    """One thing that keeps a tool from a client, or brings it there."""

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


class Explanation(Struct, frozen=True):
    """What a search shows for a task, and why."""

    search: SearchResult
    tool: ToolExplanation | None
    """What was asked with `--tool`."""
    missed: tuple[MissedBefore, ...]
    """Misses on record, the cause of the last one first."""


@click.command("explain")
@click.argument("task", nargs=-1, required=True)
@click.option("--tool", "name", default="", metavar="NAME", help="Also say why this tool is shown, or why not.")
@profile_option
@config_option
@json_option
def command(path: Path | None, as_json: bool, profile: str, task: tuple[str, ...], name: str) -> int:
    """Say why a search for TASK shows these tools and not another one.

    Ranks as a proxy does for the first search of a client. Records nothing.

    \b
    foretool explain "what time is it in Tokyo"
    foretool explain "what time is it in Tokyo" --tool git__git_log
    """
    words = " ".join(task)
    with open_search(path, profile, may_be_empty=bool(name)) as (app, shown_to), output.waiting("searching"):
        found = search(app, words, shown_to, None)
        say_without_encoders(app)
        asked: ToolExplanation | None = None
        if not name:
            missed = read_vain_searches(app.store, shown_to.name, words)
        elif (tool := app.catalog.find(name)) is not None:
            missed = read_missed(app.store, shown_to.name, tool.id)
            asked = explain_tool(app, found, tool, shown_to)
        else:
            before = map(_say_missed, read_missed(app.store, shown_to.name, name))
            return complain(f"explain: {'; '.join([_say_unknown(app, name), *before])}", WRONG)
    return output.show(Explanation(found, asked, missed), as_json, _print)


def read_missed(store: Store, profile: str, name: str) -> tuple[MissedBefore, ...]:
    """Return the misses of one tool in one profile, by cause, the latest first."""
    counts = store.calls.count_misses(MissFilter(tool=name, profile=profile))
    own = [MissedBefore(each.cause, each.count, each.last_at, each.last_id) for each in counts if each.tool == name]
    return tuple(sorted(own, key=lambda each: -each.last_at))


def read_vain_searches(store: Store, profile: str, task: str) -> tuple[MissedBefore, ...]:
    """Return the misses among the latest ones that are searches for this task in vain, by cause, the latest first."""
    found: dict[Cause, list[Miss]] = {}
    for miss in store.calls.find_misses(MissFilter(profile=profile), LATEST):
        if (not miss.tool or miss.noticed in VAIN) and miss.query.split() == task.split():
            found.setdefault(miss.cause, []).append(miss)
    return tuple(MissedBefore(cause, len(own), own[0].at, own[0].id) for cause, own in found.items())


def explain_tool(app: App, found: SearchResult, tool: Tool, profile: Profile) -> ToolExplanation:
    """Say where a tool stands for the task of a search, and what keeps it from the client."""
    reach = app.policy.reach(profile)
    query = Query(lines=tuple(found.task.splitlines()), profile=profile.name)
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
    """Say why lists lack a tool: the one that the latest client has, and the one that is made now."""
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
    if is_listed:
        new = "a list that is made now has it" if cause else "the client's list has it, so no search is needed"
        return cause, [*said, Reason(new)]
    if is_named:
        new = "a list that is made now names it" if cause else "the client's list names it, so no search is needed"
        return cause, [*said, Reason(f"{new}: it stands in the descriptions of the bridges with what a call takes")]
    why = HiddenTools(app.lists).why(view, tool.id, tool.upstream)
    what = "a list that is made now lacks it too" if cause else "the client's list lacks it"
    change = why.change.replace("none: ", "nothing: ", 1) if why.change.startswith("none: ") else why.change
    return cause or why.cause, [*said, Reason(f"{what} ({why.cause}): {CAUSES[why.cause]}", change)]


def read_last_list(store: Store, profile: str) -> Exposure | None:
    """Return the list that the latest client of a profile has; None if it is gone or has none."""
    for session in store.sessions.recent(SESSIONS):
        if session.profile == profile:
            lists = [each for each in store.sessions.exposures(session.key) if each.reason in LISTS]
            return lists[-1] if lists and session.ended_at is None else None
    return None


def is_named_in(store: Store, got: Exposure, tool: Tool) -> bool:
    """Tell whether a list that a client has names a tool."""
    named = (each for each in store.sessions.exposures(got.session) if each.reason == "named" and each.at == got.at)
    return any(tool.id in each.tools for each in named)


def was_known(app: App, tool: Tool, got: Exposure) -> bool:
    """Tell whether any tool of its server was known when a list was made."""
    own = app.catalog.in_order(tool.upstream)
    if not {each.id for each in own}.isdisjoint(got.tools):
        return True
    names = dict.fromkeys((tool.name, *(each.name for each in own)))
    versions = app.store.catalog.versions
    return any(each.first_seen <= got.at for name in names for each in versions(tool.upstream, name))


def _say_unknown(app: App, name: str) -> str:
    """Say why no tool is known by a name, and what to do."""
    for server, exposed, own in app.store.approvals.refused("tool"):
        if name in (exposed, own):
            return f"{name!r} of server {server!r} waits for your approval (denied); foretool review {server} shows it"
    if (gone := app.catalog.why_gone(name)) is not None:
        return f"{name!r} cannot be called (denied): {gone.reason}: {gone.way_out}"
    unlisted = sorted(app.upstreams.unlisted())
    if any(name.startswith(f"{server}__") for server in unlisted):
        server = name.partition("__")[0]
        if (failure := app.upstreams.failure(server)) is not None:
            return f"server {server!r} does not work (offline): {failure.reason}"
        return f"the tools of server {server!r} are not known (offline); foretool doctor says why"
    meant = offline.suggest(app, name) or "; foretool tools lists them"
    return f"no tool is called {name!r} (unknown){meant}"


def _say_missed(missed: MissedBefore) -> str:
    times = output.plural(missed.count, "miss")
    return (
        f"{times} on record, the last one {output.ago(missed.last_at)} ({missed.cause}): {CAUSES[missed.cause]};"
        f" foretool misses show {missed.last_id} has it in full"
    )


def _print(explained: Explanation) -> None:
    found = explained.search
    if not found.matches:
        output.say(f"The search shows no tool: nothing fits well enough (confidence {found.confidence}).")
    for hit in found.matches:
        listed = " (listed)" if hit.listed else ""
        output.say(f"{hit.rank}  {hit.tool}{listed}", "bold")
        output.say(f"   {hit.why or 'ranked by its score'}")
        output.say(f"   score {hit.score:.2f}: {output.score_parts(hit.parts)}", "dim")
    if found.matches:
        count = output.plural(found.fitting, "tool")
        output.say(f"{len(found.matches)} of {count} that fit at all; confidence {found.confidence}.")
    if explained.tool is not None:
        _print_tool(explained.tool)
    for missed in explained.missed:
        what, _, do = _say_missed(missed).partition("; ")
        output.say(f"  {what}")
        output.say(f"    -> {do}")


def _print_tool(asked: ToolExplanation) -> None:
    place = f"place {asked.rank} of {asked.of}" if asked.rank else "not among them"
    output.say(f"\n{asked.tool}: {place}", "bold")
    if asked.parts:
        output.say(f"  score {asked.score:.2f}: {output.score_parts(asked.parts)}", "dim")
    for reason in asked.reasons:
        output.say(f"  {reason.what}")
        if reason.do:
            output.say(f"    -> {reason.do}")

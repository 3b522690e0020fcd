"""The servers in an answer: a map with one line each, and those whose tools nobody can find now.

Only names, counts and texts that were approved reach the model: the error of a server that failed is for the user.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.config.codes import Code
from foretool.server.config.loader import LiveConfig
from foretool.server.trust.policy import Reach
from foretool.server.trust.text import one_line
from foretool.server.upstreams.registry import UpstreamRegistry

_CLAUSES: Final = (90, 60, 40)
"""Characters of what is said of each server; the longest that lets all servers fit is taken. If none does, the last
servers are named alone, or counted."""
OTHERS: Final = "others"
"""Stands in a map for the servers that it has no room for."""
_REMEMBERED: Final = 2048
"""So many names, and lines with their tokens, need not be worked out again: the next answer has mostly the same."""
UNDER_REVIEW: Final = "under review"
"""The state of a server of which tools wait for the user, so that no search finds them."""
_MOST_ABSENT: Final = 5
"""So many servers that are not there are named one by one."""


class Away(Struct, frozen=True):
    """A server of the profile whose tools cannot be found, or whose calls may fail."""

    name: str
    state: str
    """"starting", "down", "signed out": down until a person signs in, "not set up": its entry cannot be used, or
    `UNDER_REVIEW`."""
    has_tools: bool
    """Whether its tools are known from before."""


def find_absent(upstreams: UpstreamRegistry, config: LiveConfig, reach: Reach) -> list[Away]:
    """Return the servers of a profile that are starting for the first time or down, and those that cannot start because
    of their entries. One that only lacks an open folder is meant for other clients."""
    absent = upstreams.absent(reach.profile)
    broken = [name for name in config.now.wrong if reach.admits(name)]
    if not (absent.starting or absent.down or broken):
        return []
    unlisted = upstreams.unlisted()
    # A command that only looks starts nothing.
    starting = [name for name in absent.starting if upstreams[name].starts]
    signed_out = [name for name in absent.down if _needs_sign_in(upstreams, name)]
    down = [name for name in absent.down if name not in signed_out]
    return [
        Away(name, state, name not in unlisted and state != "not set up")
        for state, names in (("starting", starting), ("signed out", signed_out), ("down", down), ("not set up", broken))
        for name in names
    ]


def _needs_sign_in(upstreams: UpstreamRegistry, name: str) -> bool:
    failure = upstreams.failure(name)
    return upstreams[name].needs_sign_in or (failure is not None and failure.code == Code.SIGN_IN)


def map_servers(catalog: Catalog, reach: Reach, first: Iterable[str], tokens: int) -> dict[str, str]:
    """Return for each server of a profile the number of its tools, and what the config says that it is for.

    `first`: the servers that come first, the likeliest ones. The last of those that do not fit into `tokens` stand
    under `others`.
    """
    counts = {name: count for name, count in catalog.now.count_tools(reach).items() if count}
    names = [name for name in dict.fromkeys([*first, *counts]) if name in counts]
    for most in _CLAUSES:
        entries = {name: _entry(catalog, name, counts[name], most) for name in names}
        if (spent := sum(map(_cost, entries.items()))) <= tokens:
            return entries
    for name in reversed(names):
        spent -= _cost((name, entries[name]))
        entries[name] = _count(counts[name])
        spent += _cost((name, entries[name]))
        if spent <= tokens:
            return entries
    return _cut(entries, tokens)


def write_map(servers: Mapping[str, str]) -> list[str]:
    """Return the lines of a map: one for each server of which it is said what it is for, and one for all the others."""
    described = {name: entry for name, entry in servers.items() if ": " in entry}
    named = [_named(name, entry) for name, entry in servers.items() if name not in described]
    if not described:
        return [f"servers (tools): {', '.join(named)}"]
    lines = [f"- {name}: {entry}" for name, entry in described.items()]
    return ["servers:", *lines, *([f"- others (tools): {', '.join(named)}"] if named else [])]


def _cut(entries: Mapping[str, str], tokens: int) -> dict[str, str]:
    """Return as many of the first servers as fit, and how many others there are."""
    kept: dict[str, str] = {}
    tokens -= _cost((OTHERS, "and 999 more servers"))
    for entry in entries.items():
        tokens -= _cost(entry)
        if tokens < 0:
            break
        kept.update([entry])
    return {**kept, OTHERS: f"and {len(entries) - len(kept)} more servers"}


def _entry(catalog: Catalog, name: str, count: int, most: int) -> str:
    """Say how many tools a server has, and what it is for, as the user describes it in the config. The first words that
    it says of itself are often advice or advertising, and the names of a few tools say little of the others."""
    from foretool.retrieval.document import first_sentence

    described = catalog.texts.about(name)
    clause = one_line(first_sentence(described, most)) if described != catalog.texts.instructions(name) else ""
    return f"{_count(count)}: {clause}" if clause else _count(count)


def _count(tools: int) -> str:
    return f"{tools} tool{'s' if tools != 1 else ''}"


def _named(name: str, entry: str) -> str:
    return f"{name} ({entry.split()[0]})" if name != OTHERS else entry


@lru_cache(_REMEMBERED)
def _cost(entry: tuple[str, str]) -> int:
    is_described = ": " in entry[1]
    return estimate(f"- {entry[0]}: {entry[1]}") + 1 if is_described else estimate(f"{_named(*entry)}, ")


def matter(
    absent: Sequence[Away], catalog: Catalog, task: Sequence[str], told: Collection[str] = (), *, is_sure: bool
) -> list[Away]:
    """Return which absent servers an answer should name: in doubt all, else those whose name or description shares a
    word with the task. A server that is down is named once a session (`told`), and again where the task names it."""
    if not absent:
        return []  # as mostly: no search has to read the task for it

    from foretool.retrieval.glossary import put_into_english
    from foretool.retrieval.words import terms

    def words(text: str) -> set[str]:
        return set(terms(put_into_english(text)))

    wanted = set[str]().union(*map(words, task))

    def is_new(server: Away) -> bool:
        return server.state == "starting" or server.name not in told or bool(wanted & words(server.name))

    hidden = [each for each in absent if not each.has_tools and is_new(each)]
    if not is_sure:
        return hidden
    return [each for each in hidden if wanted & (words(each.name) | words(catalog.texts.about(each.name)))]


def blame(absent: Sequence[Away], catalog: Catalog, task: Sequence[str]) -> str:
    """Return what to do about servers whose tools are not known yet and that probably have what the task needs: those
    whose name or description shares a word with it, or all if no tool is known at all. "" if there are none."""
    unlisted = [each for each in absent if not (each.has_tools or each.state == UNDER_REVIEW)]
    found = matter(unlisted, catalog, task, is_sure=True) if len(catalog) else unlisted
    if not found:
        return ""
    names = ", ".join(repr(each.name) for each in found[:_MOST_ABSENT])
    more = f" and {len(found) - _MOST_ABSENT} more" if len(found) > _MOST_ABSENT else ""
    if any(each.state == "starting" for each in found):
        return f"none: the tools of {names}{more} were not known yet; the next search finds them"
    return f"see why the tools of {names}{more} are not known: foretool doctor"


def describe_absent(absent: Sequence[Away]) -> str:
    """Say in a line or two which servers are not there, and what can be done about it."""
    lines = []
    if names := [one_line(each.name, 60) for each in absent if each.state == UNDER_REVIEW]:
        more = f" and {len(names) - _MOST_ABSENT} more" if len(names) > _MOST_ABSENT else ""
        lines.append(
            f"Tools of {', '.join(names[:_MOST_ABSENT])}{more} wait for the user's approval and are missing here: tell"
            " the user, who can run `foretool review`."
        )
    first = next((one_line(each.name, 60) for each in absent if each.state == "signed out"), "")
    for state, way_out in (
        ("starting", "ask again in a few seconds"),
        ("signed out", f"ask the user to run `foretool login {shlex.quote(first)}` in a terminal"),
        ("down", "tell the user, who can run `foretool doctor`"),
        ("not set up", "tell the user, who can run `foretool doctor`"),
    ):
        names = [one_line(each.name, 60) for each in absent if each.state == state]
        if names:
            more = f" and {len(names) - _MOST_ABSENT} more" if len(names) > _MOST_ABSENT else ""
            are, their = ("are", "their") if len(names) > 1 else ("is", "its")
            servers = "Servers" if len(names) > 1 else "Server"
            lines.append(
                f"{servers} {', '.join(names[:_MOST_ABSENT])}{more} {are} {state}, so {their} tools are missing here: "
                f"{way_out}."
            )
    return "\n".join(lines)

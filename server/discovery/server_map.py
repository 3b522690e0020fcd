"""The servers in an answer: a map with one line each, and those whose tools nobody can find now.

Only names, counts and texts that were approved reach the model: the error of a server that failed is for the user.
"""

from __future__ import annotations

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
"""Characters of what is said of each server; the longest that lets all servers fit is taken. If none does, the first
servers have the shortest, and the others are named."""
_REMEMBERED: Final = 2048
"""So many names, and lines with their tokens, need not be worked out again: the next answer has mostly the same."""
_MOST_ABSENT: Final = 5
"""So many servers that are not there are named one by one."""


class Away(Struct, frozen=True):
    """A server of the profile whose tools cannot be found, or whose calls may fail."""

    name: str
    state: str
    """"starting", "down", "signed out": down until a person signs in, or "not set up": its entry cannot be used."""
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
    """Return for each server of a profile the number of its tools and a clause about it.

    `first`: the servers that come first, the likeliest ones. Those that do not fit into `tokens` stand under `others`.
    """
    counts = {name: count for name, count in catalog.now.count_tools(reach).items() if count}
    names = [name for name in dict.fromkeys([*first, *counts]) if name in counts]
    for most in _CLAUSES:
        entries = {name: _entry(catalog, reach, name, counts[name], most) for name in names}
        if sum(map(_cost, entries.items())) <= tokens:
            return entries
    return _with_rest(catalog, reach, names, counts, tokens)


def _with_rest(
    catalog: Catalog, reach: Reach, names: Sequence[str], counts: Mapping[str, int], tokens: int
) -> dict[str, str]:
    """Return a line for each of the first servers, and the names of the others in one more."""
    rest = [f"{name} ({counts[name]})" for name in names]
    kept: dict[str, str] = {}
    for at, name in enumerate(names):
        entry = _entry(catalog, reach, name, counts[name], _CLAUSES[-1])
        left = tokens - _cost((name, entry))
        if left < min(_cost(("others", ", ".join(rest[at + 1 :]))), tokens // 2):
            break
        kept[name], tokens = entry, left
    others = rest[len(kept) :]
    while others and _cost(("others", f"{', '.join(others)}, and 999 more")) > tokens:
        others = others[: len(others) * 4 // 5]
    left_out = len(rest) - len(kept) - len(others)
    if said := ", ".join(filter(None, (*others, f"and {left_out} more servers" if left_out else ""))):
        kept["others"] = said
    return kept


def _entry(catalog: Catalog, reach: Reach, name: str, count: int, most: int) -> str:
    said = f"{count} tool{'s' if count != 1 else ''}"
    return f"{said}: {clause}" if (clause := _clause(catalog, reach, name, most)) else said


def _clause(catalog: Catalog, reach: Reach, name: str, most: int) -> str:
    """Say what a server is for: as the user describes it in the config, else by the names of its first tools. The first
    words that it says of itself are often advice or advertising, and say less."""
    from foretool.retrieval.document import first_sentence

    described = catalog.server_text(name)
    if described != catalog.instructions(name) and (text := one_line(first_sentence(described, most))):
        return text
    tools = (_plain(tool.name) for tool in catalog.of(name) if reach.finds(tool))
    said = ""
    for at, tool in enumerate(tools):
        longer = f"{said}, {tool}" if said else tool
        if len(longer) > most:
            return f"{said}, …" if at else first_sentence(tool, most)
        said = longer
    return said


_plain = lru_cache(_REMEMBERED)(one_line)
"""The name of a tool as it may stand in an answer."""


@lru_cache(_REMEMBERED)
def _cost(entry: tuple[str, str]) -> int:
    return estimate(f"- {entry[0]}: {entry[1]}") + 1


def matter(
    absent: Sequence[Away], catalog: Catalog, task: Sequence[str], told: Collection[str] = (), *, is_sure: bool
) -> list[Away]:
    """Return those of the absent servers that could have had the tool: all of them in doubt, else those whose name or
    description shares a word with the task. One that is down is named once a session (`told`), and again where the task
    names it."""
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
    return [each for each in hidden if wanted & (words(each.name) | words(catalog.server_text(each.name)))]


def blame(absent: Sequence[Away], catalog: Catalog, task: Sequence[str]) -> str:
    """Say what is to be done about the servers whose tools nobody knows yet, and that probably have what a task is for:
    those whose name or description shares a word with it, or all if no tool is known at all. "" if there are none."""
    unlisted = [each for each in absent if not each.has_tools]
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
    first = next((one_line(each.name, 60) for each in absent if each.state == "signed out"), "")
    for state, way_out in (
        ("starting", "ask again in a few seconds"),
        ("signed out", f"ask the user to run `foretool login {first}` in a terminal"),
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

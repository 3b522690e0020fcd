"""What somebody who may see one profile is shown of misses: a tool that the profile does not have exists nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from foretool.desk.page.access import Viewer, admits
from foretool.server.config.loader import Config
from foretool.storage.records import UNNAMED, Call, Miss, MissCount, MissFilter
from foretool.storage.store import Store

_OUTSIDE: Final = ("add ", "a rule or the profile leaves out")
"""How the change begins that would have shown a tool which may be another profile's."""
MOST_DENIED: Final = 5_000
"""So many misses are read one by one for one request, the newest, which takes a tenth of a second."""
_NOT_FOUND: Final = (
    "add a server that has such a tool, or describe the one that is there (server setting `description`)"
)


def conceal(viewer: Viewer, miss: Miss) -> Miss:
    """Return a miss as this viewer may see it: a miss of a tool outside the viewer's profile looks like one of an
    unknown name."""
    if not _is_outside(viewer, miss):
        return miss
    if miss.kind == "search":
        return replace(miss, cause="unknown", change=UNNAMED if miss.tool else _NOT_FOUND)
    change = miss.change.partition("; ")[2] or UNNAMED
    return replace(
        miss, noticed="unknown_name", cause="unknown", change=change, rank=0, of=0, query="", discovery=0, parts={},
        turns=1, tokens=0, call=0,
    )  # fmt: skip


def _is_outside(viewer: Viewer, miss: Miss) -> bool:
    return not viewer.sees_all and miss.cause == "denied" and miss.change.startswith(_OUTSIDE)


def may_see_call(config: Config, viewer: Viewer, call: Call) -> bool:
    """Return whether a viewer may see a call. A refused call of a server outside the viewer's profile is hidden: a call
    of an unknown name has no record either."""
    return call.outcome != "refused" or admits(config, viewer, call.upstream)


def find_misses(store: Store, viewer: Viewer, wanted: MissFilter, limit: int) -> list[Miss]:
    """Return the newest misses that fit, as a viewer may see them. Raises `StorageError`."""
    if viewer.sees_all or wanted.cause not in ("denied", "unknown"):
        return [conceal(viewer, each) for each in store.calls.find_misses(wanted, limit)]
    found = [each for each in _find_denied(store, viewer, wanted) if each.cause == wanted.cause]
    if wanted.cause == "unknown":
        found += store.calls.find_misses(wanted, limit)
    return sorted(found, key=lambda each: (each.at, each.id), reverse=True)[:limit]


def count_misses(store: Store, viewer: Viewer, wanted: MissFilter) -> list[MissCount]:
    """Return how often each tool was missed for each cause, as a viewer may see it. Raises `StorageError`."""
    if viewer.sees_all or wanted.cause not in (None, "denied", "unknown"):
        return store.calls.count_misses(wanted)
    counted = [each for each in store.calls.count_misses(replace(wanted, cause=None)) if each.cause != "denied"]
    denied = _find_denied(store, viewer, wanted)
    return [each for each in _add(counted, denied) if wanted.cause in (None, each.cause)]


def _find_denied(store: Store, viewer: Viewer, wanted: MissFilter) -> Iterator[Miss]:
    """Yield the newest misses that a rule or a profile caused, as a viewer may see them."""
    for miss in store.calls.find_misses(replace(wanted, cause="denied"), MOST_DENIED):
        yield conceal(viewer, miss)


def _add(counts: Iterable[MissCount], misses: Iterable[Miss]) -> list[MissCount]:
    """Return counts with more misses, the most frequent first."""
    found = {(each.tool, each.cause, each.kind): each for each in counts}
    for miss in misses:
        name = "" if miss.kind == "search" else miss.tool
        is_over = int(miss.recovered != "no")
        one = MissCount(name, miss.cause, 1, is_over, miss.turns, miss.tokens, miss.at, miss.id, miss.kind)
        key = (name, miss.cause, miss.kind)
        found[key] = found[key].with_more(one) if key in found else one
    return sorted(found.values(), key=lambda each: (-each.count, -each.last_at, each.tool))

"""Who looks at the page, and what they may see.

Whoever lets a request in (`access.PageDoor`, or the gate of `serve --http`) puts a `Viewer` into its ASGI scope. A
request without one is refused. To somebody who may see one profile a tool that the profile does not have exists
nowhere: a miss of it looks like one of an unknown name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from foretool.server.config.loader import Config
from foretool.server.system.processes import own_person
from foretool.server.trust.policy import Reach
from foretool.storage.records import UNNAMED, Call, Miss, MissCount, MissFilter, Person
from foretool.storage.store import Store

VIEWER: Final = "foretool.viewer"
"""The key in the ASGI scope."""
_OUTSIDE: Final = ("add ", "a rule or the profile leaves out")
"""How the change begins that would have shown a tool which may be another profile's."""
MOST_DENIED: Final = 5_000
"""So many misses are read one by one for one request, the newest, which takes a tenth of a second."""
_NOT_FOUND: Final = (
    "add a server that has such a tool, or describe the one that is there (server setting `description`)"
)


class Viewer(Struct, frozen=True):
    """The person behind a browser that was let in, and what they may see."""

    form_key: str
    """Every form that changes something carries it, so that no other site can send one."""
    profile: str | None = None
    """Only what belongs to this profile is shown; None shows everything."""
    may_decide: bool = True
    """Whether the buttons that change something are there and work."""

    principal: str = ""
    name: str = ""
    """Who it is: the owner of a token; "" for the user who runs the page."""

    @property
    def person(self) -> Person:
        """Return this person as records of decisions name them."""
        return Person(self.principal, self.name) if self.principal else own_person()

    @property
    def sees_all(self) -> bool:
        return self.profile is None


def viewer_of(request: Request) -> Viewer:
    """Return who sent a request. Raises `KeyError` if nobody has let it in."""
    viewer: Viewer = request.scope[VIEWER]
    return viewer


def admits(config: Config, viewer: Viewer, server: str) -> bool:
    """Return whether a viewer may see the tools of a server."""
    if viewer.profile is None:
        return True
    profile, found = config.profiles.get(viewer.profile), config.servers.get(server)
    if found is not None and found.per_user is not None:
        return False  # what it lists to one person of the profile, it lists to nobody else
    return profile is not None and Reach(profile, config.servers, config.settings).admits(server)


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

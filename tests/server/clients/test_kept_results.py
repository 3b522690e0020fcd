"""Rests of long results: whose they are, and what makes room for what."""

from __future__ import annotations

from requirements import requirement

from foretool.server.clients import kept_results
from foretool.server.clients.kept_results import KeptResults, Rest
from foretool.storage.records import ToolId

MIB = 1024 * 1024


def rest(upstream: str = "files", size: int = 10) -> Rest:
    return Rest(ToolId(f"{upstream}__read"), upstream, "x" * size, 100)


def keep(kept: KeptResults, session: str, given: Rest) -> str:
    ident = kept.keep(session, given)
    assert ident is not None
    return ident


@requirement("trust:results:own")
def test_a_rest_belongs_to_the_session_that_was_given_it() -> None:
    kept = KeptResults()
    ident = keep(kept, "one", rest())
    assert kept.get("one", ident) == rest()
    assert kept.get("other", ident) is None
    assert kept.get("one", "") is None
    kept.forget("one")
    assert kept.get("one", ident) is None
    assert kept.size == 0
    kept.forget("one")


@requirement("trust:results:bounded")
def test_the_upstream_that_holds_most_makes_room_first() -> None:
    kept = KeptResults()
    small = keep(kept, "one", rest("small", MIB))
    first, second, third = (keep(kept, "one", rest("greedy", 20 * MIB)) for _ in range(3))
    assert kept.get("one", first) is None
    assert kept.get("one", second) is None
    assert kept.get("one", third) is not None
    assert kept.get("one", small) is not None
    assert kept.size <= kept_results.MOST_SESSION


@requirement("trust:results:bounded")
def test_the_session_that_holds_most_makes_room_for_the_others() -> None:
    kept = KeptResults()
    quiet = keep(kept, "quiet", rest(size=MIB))
    for session in ("a", "b", "c"):
        for _ in range(5):
            keep(kept, session, rest("greedy", 10 * MIB))
    assert kept.size <= kept_results.MOST_TOTAL
    assert kept.get("quiet", quiet) is not None


@requirement("trust:results:bounded")
def test_a_rest_without_room_is_not_kept_and_pushes_nothing_out() -> None:
    kept = KeptResults()
    ident = keep(kept, "one", rest())
    assert kept.keep("one", rest("greedy", kept_results.MOST_SESSION)) is None
    assert kept.get("one", ident) is not None


@requirement("trust:results:bounded")
def test_many_tiny_rests_are_bounded_as_well() -> None:
    kept = KeptResults()
    most = kept_results.MOST_SESSION // kept_results.OVERHEAD
    idents = [keep(kept, "one", rest(size=1)) for _ in range(most + 10)]
    alive = sum(kept.get("one", ident) is not None for ident in idents)
    assert most - 200 < alive <= most
    assert kept.get("one", idents[-1]) is not None

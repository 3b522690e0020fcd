"""Ten thousand malformed or hostile messages from either side, over every edge and link.

Hypothesis makes them (`hostile.py`); `python -m bench.proxy.hostile_messages` makes more, with other
seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hostile_stages as stages
import hypothesis
import pytest
from hostile import (
    KINDS,
    STATUSES,
    events,
    from_client,
    from_upstream,
    greetings,
    http_requests,
    results,
    tool_lists,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from requirements import requirement

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # A conversation that fails is printed, whose length must not hide the failure.
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
]


@pytest.fixture(autouse=True)
def long_numbers() -> Iterator[None]:
    with stages.long_numbers():
        yield


MESSAGES = 25
"""Of one conversation."""

STREAMS = events()
SIDES: dict[str, tuple[Callable[[Any], None], SearchStrategy[Any]]] = {
    "a client on stdio": (stages.client_over_stdio, from_client),
    "a client over HTTP": (stages.client_over_http, http_requests()),
    "an upstream on stdio": (
        stages.upstream_over_stdio,
        st.tuples(st.sampled_from(stages.METHODS), st.sampled_from(stages.MANNERS), st.one_of(from_upstream, results)),
    ),
    "an upstream that greets": (stages.upstream_that_greets, st.tuples(greetings, greetings, tool_lists)),
    "an upstream over HTTP": (
        stages.upstream_over_http,
        st.tuples(STATUSES, KINDS, st.one_of(from_upstream, STREAMS)),
    ),
    "an upstream over HTTP and SSE": (stages.upstream_over_sse, STREAMS),
}

CONVERSATIONS = dict.fromkeys(SIDES, 67) | {"an upstream that greets": 20, "a client on stdio": 114}
"""Of each side; a greeting is a start of the upstream, which takes longest."""


def property_of(side: str, conversations: int, seed: int = 0) -> Callable[[], int]:
    """Runs so many conversations; gives the number of hostile messages in them. The same at each run of one seed."""
    stage, message = SIDES[side]

    def run() -> int:
        said = 0

        @hypothesis.seed(seed)
        @settings(
            max_examples=conversations,
            deadline=None,
            database=None,
            # No shrinking: a failure that depends on time would be told after all the time that the test has.
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(message, min_size=MESSAGES, max_size=MESSAGES))
        def conversation(messages: list[Any]) -> None:
            nonlocal said
            said += len(messages)
            stage(messages)

        conversation()
        return said

    return run


@requirement("hostile:messages")
@pytest.mark.parametrize("side", SIDES)
def test_hostile_messages_harm_nobody_else_and_lose_no_record(side: str) -> None:
    assert property_of(side, CONVERSATIONS[side])() >= CONVERSATIONS[side] * MESSAGES


def test_they_are_ten_thousand_at_the_least() -> None:
    assert sum(CONVERSATIONS.values()) * MESSAGES >= 10_000

"""Predicts the next tools of a conversation from what was learned, and writes hints of them.

A prediction is made while the upstream works on the call; with its hint it takes a bridged call .4 ms of processor time
(`bench.growth.prediction`). Under the policy `growing`, the list gains the likely next tools (`lists.growth`), and the
result of the call is held until the client has listed again. Under every policy, a hint (`texts`) names the hidden
tools that are likely enough, in a text block at the end of an answer of a bridge or of `discover_tools`. The result of
a listed tool stays as its server gave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from foretool.retrieval.ranking import Query
from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.search import Search
from foretool.server.catalog.signatures import example_call, signature
from foretool.server.clients.conversation import Conversation
from foretool.server.clients.exchange import ListOwner
from foretool.server.clients.session import Session
from foretool.server.config.loader import LiveConfig
from foretool.server.hints.texts import LATEST_END, Hint, without_unasked, write_next_hint
from foretool.server.lists.order import Prediction
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.records import Exposure, ToolId

_AGAIN: Final = 3
"""Tools that are named where a search is made for a model that repeats a failing call."""
_AGAIN_OF: Final = 12
"""The best matches that these are of, so that some are left where a task has tried others."""


class Predictor:
    """Asks the learned models what comes next, and acts on the answer."""

    def __init__(
        self, search: Search, catalog: Catalog, config: LiveConfig, policy: TrustPolicy, recorder: Recorder
    ) -> None:
        self._search = search
        self._catalog = catalog
        self._config = config
        self._policy = policy
        self._recorder = recorder

    @property
    def is_ready(self) -> bool:
        """Whether anything was learned. Asking costs nothing."""
        return self._search.has_learned

    def predict(self, chat: Conversation) -> Prediction:
        """Return which tools may be called next; there are none if nothing was learned."""
        return Prediction(*self._search.predict(chat.steps, chat.lines))

    def hint(self, client: ListOwner, session: Session, chat: Conversation, prediction: Prediction) -> Hint | None:
        """Return the hidden tools that are likely next and worth their tokens, without those that this task was told
        of."""
        threshold = self._config.settings.hint_threshold
        if threshold >= 1.0 or prediction.end > LATEST_END:
            return None
        likely = {tool: chance for tool, chance in prediction.chances.items() if chance >= threshold}
        if not likely:
            return None  # as after most calls: who may call what is not looked up for them
        hidden = client.tools.hidden(session.list, likely)
        new = {
            tool: chance for tool, chance in hidden.items() if tool not in chat.told and not session.list.names(tool)
        }
        reach = self._policy.reach(client.profile)
        return write_next_hint(new, threshold, self._catalog.get, lambda tool: reach.verdict(tool).bridge)

    def untried(self, client: ListOwner, chat: Conversation, times: int) -> str:
        """Return how to call the best tool that was named for a task and that it has not called, after another has
        failed so many `times`; "" if there is none."""
        return next((call for _, call in self._write_calls(client, chat, chat.untried(times))), "")

    def search_again(self, client: ListOwner, session: Session, chat: Conversation) -> str:
        """Return how to call what is found for the words of a task that was told of nothing else; "" if nothing is."""
        if not chat.lines:
            return ""
        finds = self._policy.reach(client.profile).finds
        ranking = self._search.rank(Query(chat.lines, (), (), (), client.profile.name), finds, _AGAIN_OF)
        left = (each.tool for each in ranking.ranked if each.tool not in chat.tried)
        calls = dict(islice(self._write_calls(client, chat, left), _AGAIN))
        text = ", ".join(calls.values())
        hidden = tuple(client.tools.hidden(session.list, dict.fromkeys(calls, 1.0)))
        if hidden:
            self.note_shown(session, chat, Hint(text, hidden, estimate(text)))
        chat.note_named(calls)
        return text

    def _write_calls(
        self, client: ListOwner, chat: Conversation, tools: Iterable[ToolId]
    ) -> Iterator[tuple[ToolId, str]]:
        """Yield those of some tools that a client may call and that do nothing its task has not asked for, each with
        how it is called."""
        reach = self._policy.reach(client.profile)
        known = (tool for each in tools if (tool := self._catalog.get(each)) and reach.finds(tool))
        for tool in without_unasked(known, "\n".join(chat.lines)):
            if call := signature(tool):
                yield tool.id, example_call(call, reach.verdict(tool).bridge)

    def note_shown(self, session: Session, chat: Conversation, hint: Hint, *, in_answer: bool = False) -> None:
        """Note that a hint goes to the model: it is on record as an exposure, and what it names is no miss.
        `in_answer`: it ends the answer of a search, whose tokens it counts with."""
        chat.note_hint(hint.tools)
        shown = session.list
        self._recorder.exposure(
            Exposure(
                session=session.record.key, at=self._recorder.now(), policy=shown.policy or "frozen",
                epoch=shown.view.epoch if shown.view is not None else 0, tools=hint.tools, reason="hint",
                tokens=0 if in_answer else hint.tokens,
            )
        )  # fmt: skip


def with_text(result: Raw, text: str) -> Raw:
    """Return a result of a bridge with a text as its last block, or unchanged if it has no list of blocks."""
    try:
        members: dict[str, Any] = jsonrpc.fields(result)
        blocks: list[Any] = jsonrpc.items(members["content"])
    except (KeyError, ValueError):
        return result
    return jsonrpc.raw({**members, "content": [*blocks, {"type": "text", "text": text}]})

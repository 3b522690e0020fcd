"""The list of one session: what it was given, and what it gains under the policy `growing`.

A list gains tools only at its end, so the bytes before them stay. What has grown counts as seen only once the client
has fetched the list again (`SessionList.delivered`). Whether a client does that when it is told is measured (`policy`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, Protocol

from msgspec.structs import replace

from foretool.retrieval.ranking import Ranked
from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.lists.epochs import ListKeeper
from foretool.server.lists.maker import View
from foretool.server.lists.order import GrowthRule, Prediction
from foretool.server.lists.pages import has_page
from foretool.server.lists.policy import RelistWatch, Told, is_called_by_code
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Discovery, Exposure, ListReason, Policy, SessionRecord, ToolId
from foretool.storage.steps import Steps

RELIST_S: Final = 2.0
"""A client that lists again within this time of `list_changed` counts as one that re-lists."""

_GRACE_S: Final = 0.05
"""After the client listed again, a held result waits this long, so that over HTTP it does not overtake the list."""


class SessionList:
    """The list of one session. Tools that have grown on it count as hidden until the client lists again."""

    def __init__(self, record: SessionRecord, *, shows_pages: bool = False) -> None:
        self.record = record
        self.shows_pages = shows_pages
        """Whether its client shows the pages of servers (MCP Apps)."""
        self.view: View | None = None
        """The list the client was given last."""
        self.exposure = 0
        """Id of the record of that list."""
        self.policy: Policy | None = None
        """Chosen at the first list, and again when the client ledger has learned something."""
        self.first_policy: Policy | None = None
        """The policy of the list that it began with. A later choice takes no tool off the list."""
        self.is_called_by_code: bool | None = None
        """Whether code of its model made the last call; None while nothing says so."""
        self.grown: list[ToolId] = []
        """Tools appended to the list since it began, in order."""
        self.delivered = 0
        """How many of them the client has got in a list."""
        self.recorded = 0
        """How many of them the list had that is on record."""
        self.found: set[ToolId] = set()
        """Those of them that a discovery had to find: the list lacked them before."""
        self.find_kept: Callable[[], frozenset[ToolId]] = frozenset
        """Returns what the last list of a client of this name and profile had or named."""
        self._lacked: dict[ToolId, View] = {}
        """By tool that grew, the list that lacked it."""

    def keeps(self, tool: ToolId) -> bool:
        """Return whether a client that has fetched no list yet knows a tool from the last list of its kind: VS Code
        shows that to the model, and starts a server only for a call."""
        return self.view is None and tool in self._kept

    @cached_property
    def _kept(self) -> frozenset[ToolId]:
        """Read only if a call comes before a list, which is rare."""
        return self.find_kept()

    def lists(self, tool: ToolId) -> bool:
        return self.view is not None and (tool in self.view.shown or tool in self.grown)

    def sees(self, tool: ToolId) -> bool:
        """Return whether the client was given the tool. One that has not listed again has not got what grew."""
        return self.view is not None and (tool in self.view.shown or tool in self.grown[: self.delivered])

    def names(self, tool: ToolId) -> bool:
        """Return whether the list names a hidden tool with what its call needs."""
        return self.view is not None and tool in self.view.named

    def is_for_page(self, tool: ToolId) -> bool:
        """Return whether the list has a tool for the page of its server alone; no model sees it."""
        return self.view is not None and tool in self.view.for_pages

    def grow(self, tools: Sequence[ToolId], *, found: bool) -> None:
        """Append tools; `found`: a discovery had to find them."""
        self.grown += tools
        if self.view is not None:
            self._lacked.update(dict.fromkeys(tools, self.view))
        if found:
            self.found.update(tools)

    def give(self, view: View, exposure: int) -> None:
        """Note which list the client was given, and the id of its record."""
        self.view = view
        self.exposure = exposure
        self.recorded = self.delivered

    def deliver(self) -> None:
        """Note that the client fetches the list, and so sees all that has grown on it."""
        self.delivered = len(self.grown)

    def gained_unseen(self, tool: ToolId) -> bool:
        """Return whether the list has gained this tool by a prediction, without a search, and the client has not
        fetched it yet."""
        return self.lists(tool) and tool not in self.found

    def lacking(self, tool: ToolId) -> View | None:
        """Return the list that the client had when this hidden tool was missing from it."""
        return self._lacked.get(tool, self.view)


class Audience(Protocol):
    """The client to which a list belongs."""

    profile: Profile

    def lists(self) -> Sequence[SessionList]:
        """Return the list of each of its sessions, the latest last."""
        ...

    def notify(self, kind: str, method: str) -> bool:
        """Send a notification that belongs to no request; return whether the client gets it."""
        ...


class ToolList:
    """Shows one client its tools, grows the list where the policy allows, and tells the client when it has changed."""

    def __init__(self, client: Audience, lists: ListKeeper, config: LiveConfig) -> None:
        self._client = client
        self._lists = lists
        self._catalog = lists.maker.inputs.catalog
        self._search = lists.maker.inputs.search
        self._config = config
        self._watch = RelistWatch()
        self._held: list[Callable[[], None]] = []
        """Results that wait for the client to list again."""
        self._has_tried = False
        """Whether the list has grown once to see what the client does."""

    # -- what the client sees

    def profile(self, shown: SessionList) -> Profile:
        profile = self._client.profile
        return replace(profile, shows_pages=True) if shown.shows_pages else profile

    def policy(self, shown: SessionList) -> Policy:
        """Return the policy of a session. It is chosen when first asked, and again after the ledger has changed."""
        if shown.policy is None:
            shown.policy = self._lists.ledger.choose(self.profile(shown), shown.record)
        return shown.policy

    def _first_policy(self, shown: SessionList) -> Policy:
        """Return the policy of the list that a session began with: what is measured in its course lets the list grow
        from then on, but takes no tool off it."""
        if shown.first_policy is None:
            shown.first_policy = self.policy(shown)
            if shown.first_policy == "full" and self._client.profile.policy == "auto":
                self._lists.ledger.note_whole_list(shown.record)
        return shown.first_policy

    def view(self, shown: SessionList) -> View:
        """Return the list that the session would get now, without the tools that have grown on it."""
        return self._lists.view(self.profile(shown), self._first_policy(shown))

    def is_at_hand(self, shown: SessionList) -> bool:
        """Return whether `view` has the list already."""
        return self._lists.at_hand(self.profile(shown), self._first_policy(shown)) is not None

    def prepare(self, shown: SessionList) -> Steps[None]:
        """Do in steps what `view` needs."""
        return self._lists.prepare(self.profile(shown), self._first_policy(shown))

    def array(self, shown: SessionList) -> bytes:
        """Return the definitions of the session's list as a JSON array, which the client gets now."""
        shown.deliver()
        view, era = self.view(shown), shown.record.era
        new = (tool for tool in shown.grown if tool not in view.shown)
        draft = self._lists.maker.draft(self.profile(shown), view.policy)
        return draft.append(view.array_for(era), view.for_pages, new, era)

    def record(self, shown: SessionList, reason: ListReason = "list") -> None:
        """Record what the client was given. A list that was given before is not recorded again; one that has only
        grown since is recorded as such. What has grown on a list that nobody fetched was never shown."""
        view = self.view(shown)
        if shown.view is view:
            if shown.recorded == shown.delivered and reason == "list":
                return
            reason = "growth"
        grown, profile = shown.grown[: shown.delivered], self.profile(shown).key
        shown.give(view, self._lists.record(shown.record.key, view, grown, reason, profile))

    def resume(self, shown: SessionList, exposure: int) -> None:
        """Note which list another replica gave the client, by the id of its record; 0 for none."""
        if exposure and exposure != shown.exposure:
            shown.give(self._lists.given(self.view(shown), exposure, shown.grown), exposure)

    def recall(self, shown: SessionList, given: Exposure, named: Sequence[ToolId]) -> None:
        """Note which list another proxy gave the session, and which tools that named."""
        chosen = self._client.profile.policy
        if chosen in ("auto", given.policy):
            shown.first_policy = given.policy
        view, grown = self._lists.recall(self.profile(shown), given, named)
        shown.grow([tool for tool in grown if tool not in shown.grown], found=False)
        shown.deliver()
        shown.give(view, given.id)

    def note_caller(self, shown: SessionList, meta: Mapping[str, Raw]) -> None:
        """Note whether code or a model makes the calls of a session, as `_meta` of a call says."""
        is_code = is_called_by_code(meta)
        if is_code is not None and is_code is not shown.is_called_by_code:
            shown.is_called_by_code = is_code
            self._lists.ledger.note_caller(shown.record, is_code=is_code)

    def is_stale(self) -> bool:
        """Return whether the client would now get another list than the one it has."""
        return any(
            self.view(shown).array_for(shown.record.era) != shown.view.array_for(shown.record.era)
            for shown in self._client.lists()
            if shown.view is not None
        )

    def shows_all(self) -> bool:
        """Return whether the list of the latest session holds every known tool of its profile."""
        latest = self._client.lists()[-1:]
        return any(self._lists.maker.draft(self.profile(shown), self.policy(shown)).shows_all for shown in latest)

    def sees_all(self) -> bool:
        """Return whether the client has the list of the policy `full`."""
        return any(shown.view is not None and shown.view.policy == "full" for shown in self._client.lists())

    # -- what it gains

    def grow_for_prompt(self, shown: SessionList, ranked: Sequence[Ranked], *, is_sure: bool) -> bool:
        """Gain what a prompt is likely to need, best first, before anything is called. These methods return whether the
        client was told to list again."""
        return self.grow(shown, self.rule.for_prompt(ranked, is_sure))

    def grow_for_discovery(self, shown: SessionList, discovery: Discovery) -> bool:
        """Gain what a discovery has found, best first."""
        ranked = [Ranked(match.tool, match.score, match.parts) for match in discovery.matches]
        is_sure = discovery.level in ("high", "medium")
        return self.grow(shown, self.rule.for_discovery(ranked, is_sure), found=True)

    def grow_for_next(self, shown: SessionList, prediction: Prediction) -> bool:
        if self.policy(shown) != "growing":
            return False
        hidden = self.hidden(shown, prediction.chances)
        return self.grow(shown, self.rule.for_next(hidden, prediction.goes_on))

    @property
    def rule(self) -> GrowthRule:
        """The rule by which lists grow, which depends on the learned models in use."""
        return GrowthRule() if self._search.has_learned else GrowthRule(most_found=None)

    def hidden(self, shown: SessionList, chances: Mapping[ToolId, float]) -> dict[ToolId, float]:
        """Return the chances of those tools that the client does not see and may call."""
        reach = self._lists.maker.inputs.policy.reach(self._client.profile)
        return {
            tool: chance
            for tool, chance in chances.items()
            if not shown.sees(tool) and (known := self._catalog.get(tool)) is not None and reach.finds(known)
        }

    def grow(self, shown: SessionList, tools: Sequence[ToolId], *, found: bool = False) -> bool:
        """Append tools in one batch under the policy `growing`, as the budget allows. `found`: a discovery found them,
        so the list lacked them. What has a page grows under every policy where the era allows it: a host shows the
        pages of listed tools alone."""
        new = [tool for tool in tools if not shown.lists(tool)]
        is_try = found and bool(new) and self._may_try(shown)
        if self.policy(shown) != "growing" and not is_try:
            new = [tool for tool in new if self.shows_page(shown, tool)] if found else []
        added = self._lists.maker.fitting(self.view(shown), shown.grown, new)
        if not added and (is_try or any(self.shows_page(shown, tool) for tool in new[:1])):
            added = new[:1]  # a full list would never let us find out, or never show a page
        if not added:
            return False
        shown.grow(added, found=found)
        self.announce()
        return self.is_announced

    def shows_page(self, shown: SessionList, tool: ToolId) -> bool:
        """Return whether a tool has a page that the client would show if the tool came onto its list."""
        return shown.shows_pages and shown.record.era == "legacy" and has_page(self._catalog, tool)

    def _may_try(self, shown: SessionList) -> bool:
        """Return whether this growth is the one attempt with a client that was never measured.

        It costs the client at most `hold_ms` once, and a client that does not list again loses nothing: it is told to
        call what was found through a bridge.
        """
        if self._has_tried or shown.view is None or self.policy(shown) != "frozen":
            return False
        self._has_tried = self._lists.ledger.begin_try(self.profile(shown), shown.record)
        return self._has_tried

    # -- telling the client

    @property
    def is_announced(self) -> bool:
        """Whether the client was told to list again and has not done so."""
        return self._watch.state is Told.WAITING

    def announce(self) -> None:
        """Tell the client that its list has changed, and watch whether it lists again."""
        if not self._client.lists():
            return
        if not self._client.notify("toolsListChanged", "notifications/tools/list_changed"):
            return  # a modern client that does not listen cannot answer
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._watch.tell(now):
            loop.call_later(RELIST_S, self._expire, now)

    def _expire(self, told_at: float) -> None:
        if self._watch.expire(told_at):
            self._measure(None)

    def close(self) -> None:
        """Note that the conversation is over: the next list is no answer to what was announced in it."""
        if self._watch.close():
            self._measure(None)
        self._watch = RelistWatch()

    def mark_listed(self) -> None:
        """Note that the client has listed: measure how soon, and release the results that waited."""
        loop = asyncio.get_running_loop()
        said = self._watch.note_list(loop.time())
        if said is not None and said.is_late:
            for shown in self._client.lists():
                self._lists.ledger.note_late(shown.record)
        elif said is not None:
            self._measure(said.delay_s)
        if self._held:
            loop.call_later(_GRACE_S, self._release, *self._held)

    def _measure(self, delay_s: float | None) -> None:
        """Record that the client listed again after `delay_s`, or (None) did not in time."""
        for shown in self._client.lists():
            self._lists.ledger.note_relist(shown.record, delay_s)
            shown.policy = None

    def hold(self, finish: Callable[[], None]) -> None:
        """Call `finish` once the client has listed again, at most `hold_ms` later."""
        self._held.append(finish)
        asyncio.get_running_loop().call_later(self._config.settings.hold_ms / 1000, self._give_up, finish)

    def _give_up(self, finish: Callable[[], None]) -> None:
        """Release a result that was held long enough."""
        if finish in self._held:
            self._watch.give_up()
        self._release(finish)

    def _release(self, *results: Callable[[], None]) -> None:
        for finish in results:
            if finish in self._held:
                self._held.remove(finish)
                finish()

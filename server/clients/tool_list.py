"""The list of tools of one client: which policy it follows, what it was given, and whether it lists again when told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from foretool.server.clients.exposure import Exposures, View
from foretool.server.clients.policy_choice import is_scheduled
from foretool.server.clients.session import Session
from foretool.server.config.loader import LiveConfig, Profile
from foretool.storage.records import ListReason, Policy, ToolId
from foretool.storage.steps import Steps

RELIST_S: Final = 2.0
"""A client that lists again within this time of `list_changed` counts as one that re-lists."""

LATE_S: Final = 30.0
"""A client that lists again within this time, but later than `RELIST_S`, is late: the machine may have been busy."""

GRACE_S: Final = 0.05
"""After the client listed again, a held result waits this long, so that over HTTP it does not overtake the list."""


class Audience(Protocol):
    """The client whose list it is."""

    profile: Profile
    session: Session | None

    def sessions(self) -> list[Session]:
        """Return every session of the client."""
        ...

    def notify(self, kind: str, method: str) -> bool:
        """Send a notification that belongs to no request; return whether the client gets it."""
        ...


class ToolList:
    """Shows one client its tools, grows the list where the policy allows, and measures whether the client re-lists."""

    def __init__(self, client: Audience, exposures: Exposures, config: LiveConfig) -> None:
        self._client = client
        self._exposures = exposures
        self._config = config
        self._held: list[Callable[[], None]] = []
        """Results that wait for the client to list again."""
        self._announced_at = 0.0
        """Loop time of the last announcement that the client has not answered yet; 0 for none."""
        self._missed_at = 0.0
        """The latest announcement that the client did not answer in time and may still answer late; 0 for none."""
        self._in_vain_at = 0.0
        """The announcement after which a result was held and the client did not list."""
        self._first_at = 0.0
        """Loop time of the client's first list; 0 before it."""
        self._unasked = 0
        """How many lists after the first one came although nothing was announced."""
        self._has_tried = False
        """Whether the list has grown once to see what the client does."""

    # -- what the client sees

    def profile(self, session: Session) -> Profile:
        """Return the profile whose list the session gets."""
        profile = self._client.profile
        return replace(profile, shows_pages=True) if session.shows_pages else profile

    def policy(self, session: Session) -> Policy:
        """Return the session's policy. It is chosen when first asked, and again after the ledger has changed."""
        if session.policy is None:
            session.policy = self._exposures.choose_policy(self.profile(session), session.record)
        return session.policy

    def view(self, session: Session) -> View:
        """Return the list that the session would get now, without the tools that have grown on it.

        What was measured in the session decides whether the list grows from then on, but takes no tool off it.
        """
        policy = session.list_policy = session.list_policy or self.policy(session)
        return self._exposures.view(self.profile(session), policy)

    def is_at_hand(self, session: Session) -> bool:
        """Tell whether `view` has the list already."""
        policy = session.list_policy or self.policy(session)
        return self._exposures.is_at_hand(self.profile(session), policy)

    def prepare(self, session: Session) -> Steps[None]:
        """Do in steps what `view` needs."""
        policy = session.list_policy or self.policy(session)
        return self._exposures.prepare(self.profile(session), policy)

    def array(self, session: Session) -> bytes:
        """Return the definitions of the session's list as a JSON array, which the client gets now."""
        session.delivered = len(session.grown)
        return self._exposures.grown(self.view(session), session.grown, self.profile(session), session.record.era)

    def record(self, session: Session, reason: ListReason = "list") -> None:
        """Record what the client was given. A list that was given before is not recorded again; one that has only
        grown since is recorded as such. What has grown on a list that nobody fetched was never shown."""
        view = self.view(session)
        if session.view is view:
            if session.recorded == session.delivered and reason == "list":
                return
            reason = "growth"
        grown, profile = session.grown[: session.delivered], self.profile(session).key
        session.set_list(view, self._exposures.record(session.record.key, view, grown, reason, profile))

    def resume(self, session: Session, exposure: int) -> None:
        """Take in which list another replica gave the client, by the id of its record; 0 for none."""
        if exposure and exposure != session.exposure:
            session.set_list(self._exposures.given(self.view(session), exposure, session.grown), exposure)

    def is_stale(self) -> bool:
        """Tell whether the client would now get another list than the one it has."""
        given = [session for session in self._client.sessions() if session.view is not None]
        return any(
            session.view
            and self.view(session).array_for(session.record.era) != session.view.array_for(session.record.era)
            for session in given
        )

    def shows_all(self) -> bool:
        """Tell whether the list of the latest session holds every known tool of its profile."""
        session = self._client.session
        return session is not None and self._exposures.shows_all(self.profile(session), self.policy(session))

    def sees_all(self) -> bool:
        """Tell whether the client was given the list of the policy `full`."""
        views = (session.view for session in self._client.sessions())
        return any(view is not None and view.policy == "full" for view in views)

    # -- growth

    def grow(self, session: Session, tools: Sequence[ToolId], *, found: bool = False) -> bool:
        """Append tools in one batch under the policy `growing`, as the budget allows.

        `found`: a discovery found them, so the list lacked them. Returns whether the client was told to list again.
        """
        new = [tool for tool in tools if not session.lists(tool)]
        is_try = found and bool(new) and self._may_try(session)
        if self.policy(session) != "growing" and not is_try:
            return False
        added = self._exposures.fitting(self.view(session), session.grown, new)
        if is_try and not added:
            added = new[:1]  # a full list would never let us find out
        if not added:
            return False
        session.grow(added, found=found)
        self.announce()
        return self.is_announced

    def _may_try(self, session: Session) -> bool:
        """Tell whether this growth is the one attempt with a client that was never measured.

        It costs the client at most `hold_ms` once, and a client that does not list again loses nothing: it is told to
        call what was found through a bridge.
        """
        if self._has_tried or session.view is None or self.policy(session) != "frozen":
            return False
        self._has_tried = self._exposures.begin_try(self.profile(session), session.record)
        return self._has_tried

    # -- telling the client

    @property
    def is_announced(self) -> bool:
        """Whether the client was told to list again and has not done so."""
        return bool(self._announced_at)

    def announce(self) -> None:
        """Tell the client that its list has changed, and watch whether it lists again."""
        if self._client.session is None:
            return
        if not self._client.notify("toolsListChanged", "notifications/tools/list_changed"):
            return  # a modern client that does not listen cannot answer
        loop = asyncio.get_running_loop()
        if not self._announced_at:
            self._announced_at = loop.time()
            loop.call_later(RELIST_S, self._time_out, self._announced_at)

    def _time_out(self, announced_at: float) -> None:
        if self._announced_at == announced_at:
            self._announced_at, self._missed_at = 0.0, announced_at
            self._measure(None)

    def close(self) -> None:
        """Take in that the client is gone. Where a result was held for it in vain, it had time enough to list."""
        if self._announced_at and self._in_vain_at == self._announced_at:
            self._measure(None)
        self._announced_at = 0.0

    def mark_listed(self) -> None:
        """Note that the client has listed: measure how soon, and release the results that waited."""
        loop = asyncio.get_running_loop()
        if self._announced_at:
            announced_at, self._announced_at = self._announced_at, 0.0
            delay = loop.time() - announced_at
            self._measure(None if self._is_scheduled(announced_at, delay) else delay)
        elif self._missed_at and not self._is_scheduled(self._missed_at, loop.time() - self._missed_at):
            self._note_late(loop.time() - self._missed_at)
        elif self._first_at:
            self._unasked += 1
        self._missed_at = 0.0
        self._first_at = self._first_at or loop.time()
        if self._held:
            loop.call_later(GRACE_S, self._release, *self._held)

    def _measure(self, delay_s: float | None) -> None:
        """Record that the client listed again after `delay_s`, or (None) did not in time."""
        for session in self._client.sessions():
            self._exposures.record_relist(session.record, delay_s)
            session.policy = None

    def _is_scheduled(self, announced_at: float, delay_s: float) -> bool:
        return is_scheduled(delay_s, self._unasked, announced_at - self._first_at)

    def _note_late(self, delay_s: float) -> None:
        """Record that the client listed again, but not in time."""
        if delay_s <= LATE_S:
            for session in self._client.sessions():
                self._exposures.record_late(session.record)

    def hold(self, finish: Callable[[], None]) -> None:
        """Call `finish` once the client has listed again, at most `hold_ms` later."""
        self._held.append(finish)
        asyncio.get_running_loop().call_later(self._config.settings.hold_ms / 1000, self._give_up, finish)

    def _give_up(self, finish: Callable[[], None]) -> None:
        """Release a result that was held long enough."""
        if finish in self._held:
            self._in_vain_at = self._announced_at
        self._release(finish)

    def _release(self, *which: Callable[[], None]) -> None:
        for finish in which:
            if finish in self._held:
                self._held.remove(finish)
                finish()

"""All upstreams: which are there, which have listed their tools, what they can, and who waits for them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.protocol.lists import features
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.records import Era, Failure

Capabilities = Mapping[str, Any]

PATIENCE_S: Final = 30.0
"""Nobody waits for the tools of a server that has been starting for longer than this. A first `npx` may download."""


_NEW_RUN_S: Final = 300.0
"""Longest pause after a failure of a local server before a run that has not tried it does. Who has mended one may start
their client again and not run `doctor`."""
_ASLEEP_S: Final = 3.0
"""A tick that comes so long after the last one tells that this process was stopped, as with a suspended container."""


class Absent(NamedTuple):
    """Which servers of a profile are starting, and which are down, in config order."""

    starting: tuple[str, ...] = ()
    """They may yet list their tools for the first time."""
    down: tuple[str, ...] = ()
    """They failed to start, take too long for it, were lost, or could not list their tools. Tools from an earlier list
    may be known."""


class _Waiter(Struct, eq=False):
    """Somebody who waits for first lists of tools."""

    go: Callable[[], None]
    profile: Profile | None
    """Only the servers of this profile matter; None: all servers do."""
    timer: asyncio.TimerHandle | None = None


class UpstreamRegistry:
    """Holds the upstreams in config order and calls back who waits for their first list of tools."""

    def __init__(self, config: LiveConfig, policy: TrustPolicy) -> None:
        self._config = config
        self._policy = policy
        self._upstreams: dict[str, Upstream] = {}
        self._capabilities: dict[str, Capabilities] = {}
        """By upstream; from an earlier run until it has shaken hands in this one."""
        self._listed: set[str] = set()
        """Upstreams whose tools are known, from the store or from themselves."""
        self._failures: dict[str, Failure] = {}
        """By upstream: why it cannot be used, seen by this run, an earlier one or a command. Nobody waits for it."""
        self._empty: set[str] = set()
        """Those that have listed no tools in this run; every new conversation asks them again."""
        self._waiting: list[_Waiter] = []
        self._waiting_for_one: dict[str, list[Callable[[], None]]] = {}
        self._beat = 0.0
        """When it ticked last, by `time.perf_counter`."""
        self._cold_until = 0.0
        """When lists stop waiting for unknown upstreams; 0 until the first client has come, which starts them."""
        self._woken: Era | None = None
        """The era of the latest client."""

    # -- which there are

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._upstreams.values())

    def __getitem__(self, name: str) -> Upstream:
        return self._upstreams[name]

    def get(self, name: str) -> Upstream | None:
        return self._upstreams.get(name)

    def add(self, upstream: Upstream) -> None:
        """Add an upstream; its place follows the config in force."""
        found = {**self._upstreams, upstream.name: upstream}
        ordered = [name for name in self._config.now.servers if name in found]
        self._upstreams = {name: found[name] for name in dict.fromkeys([*ordered, *found])}
        if upstream.is_personal:
            self._listed.add(upstream.name)  # nobody waits for what is listed to each person alone

    def remove(self, name: str) -> Upstream | None:
        self._failures.pop(name, None)
        return self._upstreams.pop(name, None)

    def admitted(self, profile: Profile) -> list[Upstream]:
        """Return the upstreams of a profile. Where each person has a connection of their own, it is that of the
        profile's person."""
        reach = self._policy.reach(profile)
        return [self.serving(upstream.name, profile) for upstream in self if reach.admits(upstream.name)]

    def serving(self, name: str, profile: Profile) -> Upstream:
        """Return the upstream that serves the person of a profile: their own connection, where each person has one."""
        return self._upstreams[name].of(profile.person)

    def has_yet_to_list(self, name: str, profile: Profile) -> bool:
        """Return whether a server has not listed its tools to the person of a profile, in this process."""
        return name in self._upstreams and self._is_unlisted(self.serving(name, profile))

    def admits(self, profile: Profile, name: str) -> bool:
        return self._policy.reach(profile).admits(name)

    # -- what they can

    def remember(self, name: str, capabilities: Capabilities, tools: int) -> None:
        """Record what an earlier run knew of an upstream, so that no list waits for it. One that listed no tools may
        have wanted something first, so it is asked again."""
        self._capabilities[name] = capabilities
        if tools or not _may_have_tools(capabilities):
            self._listed.add(name)

    def capabilities(self, name: str) -> Capabilities | None:
        """Return what an upstream has declared; None while nothing is known."""
        return self._capabilities.get(name)

    def all_capabilities(self, profile: Profile) -> tuple[list[Capabilities], bool]:
        """Return what the upstreams of a profile have declared, and whether all of them have."""
        names = [upstream.name for upstream in self.admitted(profile) if not upstream.is_personal]
        found = [self._capabilities[name] for name in names if name in self._capabilities]
        return found, len(found) == len(names)

    def with_capability(self, capability: str, profile: Profile) -> list[Upstream]:
        """Return a profile's upstreams that declare a capability, or of which nothing is known yet."""
        # Of a server that people reach with tokens of their own, tools alone are served.
        shared = (upstream for upstream in self.admitted(profile) if not upstream.is_personal)
        return [upstream for upstream in shared if self.may_have(upstream, capability)]

    def may_have(self, upstream: Upstream, capability: str) -> bool:
        """Return whether an upstream declares a capability; while nothing is known of it, whether it may."""
        known = self._capabilities.get(upstream.name)
        return not upstream.error if known is None else capability in features(known)

    # -- who waits for their tools

    def wake_unlisted(self, era: Era, profile: Profile | None = None) -> None:
        """Start every upstream whose tools are unknown: a client (of a profile) has opened its conversation."""
        self._cold_until = asyncio.get_running_loop().time() + self._config.settings.cold_list_s
        self._woken = era
        for upstream in self:
            if upstream.name not in self._listed:
                self._start_when_due(upstream, era)
            elif upstream.name in self._empty:
                upstream.relist_all() if upstream.is_up else upstream.start(era)
        for lane in self.admitted(profile) if profile is not None and profile.person else ():
            if lane.has_listed is False:
                lane.start(era)

    def _start_when_due(self, upstream: Upstream, era: Era) -> None:
        """Start an upstream, or let one rest that has failed and is not due: it is tried again in the background, and
        not with every conversation or, where that starts a process, with every run that begins."""
        failure, server = self._failures.get(upstream.name), self._config.now.servers.get(upstream.name)
        if failure is not None and upstream.has_failed:
            if time.time() >= failure.due_at:
                upstream.start(era)
        elif failure is not None and server is not None and not server.url:
            pause_s = min(failure.last_at - failure.first_at, _NEW_RUN_S)
            # A failure may be on record from a time at which the machine's clock was fast.
            rest_s = pause_s - max(time.time() - failure.last_at, 0.0)
            asyncio.get_running_loop().call_later(rest_s, self._start_rested, upstream, era)
        else:
            upstream.start(era)

    def start_wanted(self, names: Iterable[str]) -> None:
        """Start those of these upstreams that rest after a failure in an earlier run: a search has told that they are
        down. Without a client, as for a command that only looks, nothing starts."""
        for name in names:
            if self._woken is not None and name in self._upstreams:
                self._start_rested(self._upstreams[name], self._woken)

    def _start_rested(self, upstream: Upstream, era: Era) -> None:
        if upstream.state is State.KNOWN and not upstream.has_failed:
            upstream.start(era)

    def _is_unlisted(self, upstream: Upstream) -> bool:
        return upstream.name not in self._listed if upstream.has_listed is None else not upstream.has_listed

    def unlisted(self) -> frozenset[str]:
        """Return the names of the upstreams whose tools are unknown."""
        return frozenset(self._upstreams.keys() - self._listed)

    def absent(self, profile: Profile) -> Absent:
        """Return which servers of a profile are still starting, and which are down."""
        starting, down = list[str](), list[str]()
        for upstream in self.admitted(profile):
            if upstream.error or upstream.state in (State.RETRYING, State.UNLISTED):
                down.append(upstream.name)
            elif self._is_coming(upstream):
                (down if self._is_overdue(upstream) else starting).append(upstream.name)
        return Absent(tuple(starting), tuple(down))

    def still_coming(self, profile: Profile | None = None) -> bool:
        """Return whether an upstream (of a profile) may yet list its tools for the first time."""
        return any(map(self._is_awaited, self if profile is None else self.admitted(profile)))

    def awaited(self) -> frozenset[str]:
        """Return the upstreams whose tools are unknown and that are not known to fail."""
        return self.unlisted() - self._failures.keys()

    def _is_coming(self, upstream: Upstream) -> bool:
        coming = (State.KNOWN, State.STARTING, State.READY)
        return self._is_unlisted(upstream) and upstream.state in coming and not upstream.error

    def _is_awaited(self, upstream: Upstream) -> bool:
        """Return whether lists and searches wait for an upstream: not where it is known to fail."""
        return self._is_coming(upstream) and upstream.name not in self._failures

    def _is_overdue(self, upstream: Upstream) -> bool:
        """Return whether nobody should expect the tools of an upstream soon: it has failed before and tries again, or
        it takes longer than anybody waits. A download takes its time."""
        if upstream.is_loading:
            return False
        waits = upstream.state is not State.KNOWN and time.time() - upstream.since > PATIENCE_S
        return upstream.has_failed or upstream.name in self._failures or waits

    def when_listed(self, go: Callable[[], None], profile: Profile) -> None:
        """Call `go` as soon as every upstream has listed its tools or failed to, at the latest `cold_list_s` after the
        last client has come. Where people have lists of their own, only the servers of `profile` count."""
        within_s = self._cold_until - asyncio.get_running_loop().time()
        self._wait(go, within_s, profile if profile.person else None)

    def when_searchable(self, go: Callable[[], None], profile: Profile) -> None:
        """Call `go` as soon as every upstream of a profile has listed its tools or failed to, at the latest
        `cold_search_s` from now. An upstream that has been starting for `PATIENCE_S` is not waited for."""
        self._wait(go, self._config.settings.cold_search_s, profile)

    def _wait(self, go: Callable[[], None], within_s: float, profile: Profile | None) -> None:
        if within_s <= 0 or not self._is_worth_waiting(profile):
            go()
            return
        waiter = _Waiter(go, profile)
        waiter.timer = asyncio.get_running_loop().call_later(within_s, self._stop_waiting, waiter)
        self._waiting.append(waiter)

    def _is_worth_waiting(self, profile: Profile | None) -> bool:
        """Return whether an upstream may yet list its tools soon."""
        if (profile is None or not profile.person) and self._listed.issuperset(self._upstreams):
            return False  # as in nearly every search
        oldest = time.time() - PATIENCE_S
        upstreams = self if profile is None else self.admitted(profile)
        return any(self._is_awaited(each) and (each.state is State.KNOWN or each.since > oldest) for each in upstreams)

    def _stop_waiting(self, waiter: _Waiter) -> None:
        self._waiting.remove(waiter)
        if waiter.timer is not None:
            waiter.timer.cancel()
        waiter.go()

    def when_upstream_listed(self, upstream: Upstream, era: Era, go: Callable[[], None]) -> None:
        """Call `go` as soon as one upstream has listed its tools or failed to; start it in `era` if it is down. One
        that is known to fail gets no more time than a search gives a server that starts."""
        self._waiting_for_one.setdefault(upstream.key, []).append(go)
        within_s = upstream.timeout_s or math.inf
        if upstream.name in self._failures:
            within_s = min(within_s, self._config.settings.cold_search_s)
        if within_s < math.inf:
            asyncio.get_running_loop().call_later(within_s, self._give_up, upstream, go)
        if upstream.is_up:
            upstream.relist_all()  # its list was broken or did not come
        else:
            upstream.start(era)

    def _give_up(self, upstream: Upstream, go: Callable[[], None]) -> None:
        """Stop one wait that took longer than a call of this upstream may."""
        waiting = self._waiting_for_one.get(upstream.key, [])
        if go in waiting:
            waiting.remove(go)
            go()

    def mark_listed(self, upstream: Upstream, tools: int) -> None:
        """Note that an upstream has listed its tools; `wake` calls back who waited."""
        capabilities = self._capabilities[upstream.name] = upstream.server_info.capabilities
        self._listed.add(upstream.name)
        self._failures.pop(upstream.name, None)
        self._empty.discard(upstream.name)
        if not tools and _may_have_tools(capabilities):
            self._empty.add(upstream.name)

    def wake(self, upstream: Upstream) -> None:
        """Call back who waited for this upstream: it has listed its tools or cannot."""
        for go in self._waiting_for_one.pop(upstream.key, []):
            go()
        for waiter in [each for each in self._waiting if not self._is_worth_waiting(each.profile)]:
            self._stop_waiting(waiter)

    # -- which fail

    def failure(self, name: str) -> Failure | None:
        """Return why an upstream cannot be used; None while nothing is known against it."""
        return self._failures.get(name)

    def failures(self) -> list[Failure]:
        """Return why upstreams cannot be used, for those that cannot."""
        return list(self._failures.values())

    def mark_failed(self, failure: Failure) -> None:
        """Record why an upstream cannot be used, so that nobody waits for it until it has listed its tools."""
        self._failures[failure.server] = failure

    def clear_failure(self, name: str) -> None:
        """Note that nothing is known against an upstream any more."""
        self._failures.pop(name, None)

    def try_again(self, name: str) -> None:
        """Start an upstream that somebody else has seen work, if a client is there."""
        self.clear_failure(name)
        if self._woken is not None and name in self._upstreams:
            self._upstreams[name].start(self._woken)

    # -- in the course of time

    def tick(self, *, expire: bool, tell_again: bool) -> None:
        """Stop idle upstreams and, with `expire`, give up requests whose time is over; with `tell_again`, restart those
        that were told less than the clients of now can do. Called about once a second."""
        now, beat = time.monotonic(), time.perf_counter()
        asleep = beat - self._beat if self._beat else 0.0
        self._beat = beat
        for upstream in self:
            if expire:
                upstream.expire(asleep if asleep > _ASLEEP_S else 0.0)
            if tell_again and not self._is_kept_alive(upstream):
                upstream.tell_again()
            if upstream.pids and now - max(upstream.used_at, upstream.up_at) > self._patience_with(upstream):
                upstream.rest()

    def _is_kept_alive(self, upstream: Upstream) -> bool:
        server = self._config.now.servers.get(upstream.name)
        return server is not None and server.entry.keep_alive

    def _patience_with(self, upstream: Upstream) -> float:
        """Return for how many seconds an upstream runs on after its last call."""
        settings = self._config.settings
        if self._is_kept_alive(upstream):
            return math.inf
        idle_s, unused_s = settings.idle_stop_s or math.inf, settings.unused_stop_s or math.inf
        if any(user.says_goodbye for user in upstream.users):
            return idle_s
        if upstream.users:
            unused_s = max(unused_s, settings.session_idle_s or math.inf)
        return min(idle_s, unused_s)


def _may_have_tools(capabilities: Capabilities) -> bool:
    """Return whether an upstream with these capabilities may list tools; some declare nothing at all."""
    return not capabilities or "tools" in capabilities

"""What would have shown a missed tool: the changes that apply, and making one.

`foretool misses` and the page use these functions. `budget` and `policy` are tried:
each is offered only if the list made with it has the tool. The others follow from the cause of the miss.

One change is what a tool could say of itself, or be called, so that searches in the words of people find it.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.words import spell_terms, terms
from foretool.server import offline
from foretool.server.app import App
from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.pursuit import NEAR
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config, Profile
from foretool.server.config.servers import matches, pattern_of
from foretool.server.ledger.effects import Effect
from foretool.server.ledger.story import CAUSES, say_why
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.setup.documents import DocumentError, Keys
from foretool.server.setup.own_servers import ConfigChange, OwnServers, change_config, read_own_servers
from foretool.server.trust.approvals import review_command
from foretool.server.trust.text import one_line
from foretool.storage.episodes import are_alike
from foretool.storage.records import Cause, Miss, MissCount, Policy, Tool, ToolId

FOR: Final = "Used for:"
_LATEST_CALLS: Final = 10_000
"""Calls among which one that worked is looked for."""
_LIFTED: Final[dict[Cause, str]] = {
    "gone": "its server is in use again",
    "denied": "no rule, profile or review keeps it away now",
    "offline": "its server works again",
    "preparing": "search by meaning is ready now",
}
"""Causes that are not of the list, and what is said once they have ended: no change of a list would have helped."""
NAMED_NOW: Final = "the next list names it with what its call needs"
"""What is said where the list of the next client names the tool: a call of it is then no miss."""
_NOT_BY_LIST: Final[tuple[Cause, ...]] = (*_LIFTED, "failing")
"""Causes for which a tool is missed in the list or out of it."""
DOUBTFUL: Final = "nothing on record shows that these words were for this tool"
_MOST_WORDS: Final = 200
"""Characters of a task that go into a description."""
_TRIED_WORDS: Final = 5
"""So many words of the tasks are looked at for a name."""
_LONGEST_NAME: Final = 40
_WORD: Final = re.compile(r"[A-Za-z]{3,20}\Z")
"""A word that can stand in a name."""
_PARTS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
"""The words of a name."""
_SAYS_HOW: Final = re.compile(
    r"(ly|ed|ing|i[sz]e)\Z|\A(every|full|more|new|next|now|soon|to(day|morrow|night)|yesterday)\Z", re.IGNORECASE
)
"""A word that is probably no noun."""


def most_missed(app: App, counts: Sequence[MissCount], listed: Collection[ToolId]) -> MissCount | None:
    """Return the most missed tool that a list which is made now still lacks (it is not `listed`, nor named there) and
    that a change would show, with all its misses, whatever their causes: what there is to do about misses. A tool of
    which no call has worked is none: in the list it would fail as well."""
    times: Counter[str] = Counter()
    for each in counts:
        times[each.tool] += each.count
    never_worked = app.store.calls.failing(_LATEST_CALLS)
    for each in sorted(counts, key=lambda each: -times[each.tool]):
        if each.kind != "tool" or each.cause in _NOT_BY_LIST or each.tool in listed or each.tool in never_worked:
            continue
        tool = app.catalog.get(ToolId(each.tool))
        miss = app.store.calls.miss(each.last_id) if tool is not None else None
        if miss is not None and miss.change:
            return replace(each, count=times[each.tool])
    return None


def describe_for(tool: Tool, query: str) -> str | None:
    """Return the description of a tool with the words of a task at its end; None if there are no words, or they are
    there already."""
    words = cut_words(query)
    said = read_description(tool)
    if not words or words.lower() in said.lower():
        return None
    return f"{said.rstrip()} {words}." if FOR in said else f"{said.rstrip()}\n{FOR} {words}.".lstrip()


def cut_words(query: str, most: int = _MOST_WORDS) -> str:
    """Return the words of a task in one line."""
    return one_line(" ".join(query.split()), most).rstrip(".")


def name_for(catalog: Catalog, tool: Tool, tasks: Sequence[str], other: Tool | None = None) -> str | None:
    """Return the name that has the word which most tasks of this tool share, and which its own name lacks. The name of
    another tool that is taken for it, and what that one says, lack the word as well. None for a tool that the user has
    named, and where no word will do: a name of several words does not read like one with another word behind it, nor
    does one with a word that says when or how."""
    if (tool.upstream, tool.name) in catalog.overrides.names or len(_PARTS.findall(tool.name)) > 1:
        return None
    said = f"{tool.name} {other.name} {read_description(other)}" if other is not None else tool.name
    known = set(terms(said))
    shared = Counter(
        word
        for task in tasks
        for term, word in spell_terms(task).items()
        if term not in known and _WORD.match(word) and not _SAYS_HOW.search(word)
    )
    for word, _ in shared.most_common(_TRIED_WORDS):
        name = f"{tool.name}{'-' if '-' in tool.name and '_' not in tool.name else '_'}{word.lower()}"
        if len(name) <= _LONGEST_NAME and _is_free(catalog, tool, name):
            return name
    return None


def _is_free(catalog: Catalog, tool: Tool, name: str) -> bool:
    """Return whether a server may have a tool of this name, and has none."""
    is_allowed = catalog.namespaces.refusal(tool.upstream, name) is None
    return is_allowed and catalog.find(catalog.overrides.exposed(tool.upstream, name)) is None


def read_description(tool: Tool) -> str:
    """Return what a tool says of itself, "" if it says nothing."""
    return jsonrpc.member(Raw(tool.definition), "description") or ""


Kind = Literal[
    "pin", "budget", "policy", "alias", "description", "enable", "rule", "profile", "approve", "learn", "doctor"
]
"""`pin`: list the tool always. `budget`: a larger list. `policy`: another policy. `alias`: the tool gets the name that
was called, or one with a word of the search. `description`: the tool's text says what it was needed for. `enable`: the
config no longer leaves its server or the tool out. `rule`: a rule no longer refuses it. `profile`: the profile gets its
server. `approve`, `learn`, `doctor`: another command does it."""

GUARDED: Final[tuple[Kind, ...]] = ("rule", "enable", "profile", "approve")
"""Changes that let something in which the user has kept out: only a user who names one makes it unasked."""
_MOST_BUDGET: Final = 32_000
"""The largest budget of a list that is offered."""
_STEP: Final = 50
"""Budgets are offered in steps of so many tokens."""
_MISSPELT: Final = 0.85
"""From this share of equal letters on, a name that no tool has is taken for a misspelling, which is no name to give."""
_LEAST_TASKS: Final = 10
"""With fewer tasks on record there is nothing to learn from."""
SHOWN_WORDS: Final = 60
"""Characters of a task in the words of a change."""
_AFTER_S: Final = 600.0
"""A tool that was called within this time after a search in vain, and before a search for something else, is taken for
what the search was for."""


class Fix(Struct, frozen=True):
    """One change that would have shown the tool."""

    kind: Kind
    what: str
    """In words, as `pin git__git_log`."""
    changes: tuple[ConfigChange, ...] = ()
    """Of the config; empty if another command does it."""
    command: str = ""
    """The command line that does it, or ""."""
    list_tokens: int = 0
    """Tokens of the list that is made with it; 0 if that stays as it is."""
    is_doubtful: bool = False
    """Nothing shows that the words which it gives to the tool were for it, so it is made only by its name."""


class MeasuredFix(Struct, frozen=True):
    """A change with what it would have done to the tasks on record."""

    fix: Fix
    effect: Effect | None
    """None if nothing was played: the change is not one of the config, no task is on record, or the pack that plays
    them is not there."""
    spared: int
    """How many misses of this tool fewer there would have been."""

    @property
    def spares_nothing(self) -> bool:
        """Whether it would have changed neither the misses nor the searches of the tasks on record."""
        if self.effect is None or self.spared > 0:
            return False
        parts = (self.effect.misses, self.effect.discoveries)
        return all(each.low == each.mean == each.high == 0.0 for each in parts)

    @property
    def is_idle(self) -> bool:
        """Whether it spares nothing, so that it is made only if the user names it. A change that lets in what the user
        has kept out is never idle: no task on record can show its use."""
        return self.spares_nothing and self.fix.kind not in GUARDED

    @property
    def is_advised(self) -> bool:
        """Whether it is offered without being named: as far as is known it helps, and it concerns this tool."""
        if self.fix.is_doubtful or self.is_worse:
            return False
        return self.effect is None or self.spared > 0 or self.effect.verdict == "better"

    @property
    def is_made_unasked(self) -> bool:
        """Whether `foretool misses NUMBER --fix --yes` may make it: it is advised, and lets nothing in which the user
        has kept out."""
        return self.is_advised and self.fix.kind not in GUARDED

    @property
    def is_worse(self) -> bool:
        """Whether the tasks on record would have missed or searched more with it: it is not offered."""
        if self.effect is None:
            return False
        misses, searches = self.effect.misses.mean, self.effect.discoveries.mean
        return self.effect.is_worse or misses > 0 or (misses == 0 and searches > 0)


class MissDiagnosis(Struct, frozen=True):
    """Why a tool was missed, as far as that is known now, and what would have shown it."""

    miss: Miss
    why: str
    """The cause of this miss in words."""
    tool: str
    """The exposed name of the tool; "" if it is not known which one was needed."""
    listed_now: bool | None
    """Whether the list of the next client has the tool; None if the tool is not known."""
    fixes: tuple[Fix, ...]
    lifted: str = ""
    """Why nothing has to change any more, where what kept the tool away has ended; else ""."""
    named_now: bool = False
    """Whether the list of the next client names the tool, and does not define it."""


class FixProblem(Exception):
    """A change cannot be made; the message says why and what to do."""


def diagnose_miss(app: App, miss: Miss) -> MissDiagnosis:
    """Return why a tool was missed, and every change that would have shown it. Raises `StorageError`."""
    finder = _Finder(app, miss)
    tool, listed = finder.tool, finder.is_listed
    why = say_why(miss)
    if tool is None and miss.noticed == "nothing_found" and (aside := _name_unsearched(app, finder.profile)):
        why = f"{why or CAUSES[miss.cause]}; tools of these servers were not there to be found: {', '.join(aside)}"
    return MissDiagnosis(
        miss,
        why,
        tool.id if tool is not None else miss.tool,
        listed,
        tuple(finder.find()),
        finder.lifted,
        finder.is_named,
    )


def _name_unsearched(app: App, profile: Profile) -> list[str]:
    """Return the servers of a profile whose tools no search sees now, each with the reason."""
    admits = app.policy.reach(profile).admits
    off = [f"{name} (disabled)" for name in app.config.disabled if admits(name)]
    return off + [f"{name} (does not work)" for name in sorted(app.upstreams.unlisted()) if admits(name)]


def open_own(config: Config) -> OwnServers:
    """Return the text of the config's own file. Raises `DocumentError` if it cannot be read."""
    try:
        return read_own_servers(config.path)
    except OSError as error:
        raise DocumentError(f"cannot be read ({error.strerror})") from None


def edit_config(config: Config, fix: Fix) -> OwnServers:
    """Return the config's file with the change of a fix, as an edit that is not written yet. Raises `FixProblem`."""
    if not fix.changes:
        raise FixProblem(f"this is done by another command: {fix.command}")
    try:
        own = open_own(config)
        change_config(config, own, fix.changes)
    except (ConfigError, DocumentError) as error:
        raise FixProblem(f"{config.path}: {error}") from None
    return own


class _Finder:
    def __init__(self, app: App, miss: Miss) -> None:
        self._app = app
        self._miss = miss
        session = app.store.sessions.get(miss.session)
        self._session = session
        self._search = app.store.discoveries.get(miss.discovery) if miss.discovery > 0 else None
        name = session.profile if session is not None else ""
        self.profile: Profile = app.config.profiles.get(name, app.config.profiles[""])
        exposure = app.store.sessions.exposure(miss.exposure) if miss.exposure > 0 else None
        chosen: Policy = "frozen" if self.profile.policy == "auto" else self.profile.policy
        self._policy: Policy = exposure.policy if exposure is not None else chosen
        self.tool = self._find_tool()
        view = offline.view(app, self.profile) if self.tool is not None else None
        self.is_listed = self.tool.id in view.shown if self.tool is not None and view is not None else None
        """Whether the list of the next client has the tool; None if the tool is not known."""
        self.is_named = self.tool is not None and view is not None and self.tool.id in view.named
        """Whether the list of the next client names the tool, of which a call is then no miss."""
        is_there = self.tool is not None and app.policy.reach(self.profile).finds(self.tool)
        works = is_there and self._does_not_work is None
        self.lifted: str = _LIFTED.get(miss.cause, "") if works else ""
        if works and not self.lifted and miss.noticed in ("call", "bridge", "discovery") and self.is_named:
            self.lifted = NAMED_NOW

    @property
    def _does_not_work(self) -> str | None:
        """The server of the tool, where it is known to fail now."""
        server = self.tool.upstream if self.tool is not None else ""
        return server if self._app.upstreams.failure(server) is not None else None

    def _find_tool(self) -> Tool | None:
        miss, catalog = self._miss, self._app.catalog
        if miss.noticed == "unknown_name":
            near = catalog.meanings.near(miss.tool) if catalog.meanings.why_gone(miss.tool) is None else []
            return catalog.get(near[0]) if near else None
        if miss.tool or miss.noticed == "search":
            return catalog.find(miss.tool) if miss.tool else None
        until = miss.at + _AFTER_S
        for search in self._app.store.discoveries.of_session(miss.session, miss.at, until):
            if search.at > miss.at and not are_alike(search.task, miss.query):
                until = search.at  # what was called from then on was another need
                break
        first = self._first_that_worked(until)
        return catalog.get(first) if first is not None else None

    def _first_that_worked(self, until: float) -> ToolId | None:
        """Return the tool of the first call behind the miss that worked; None without one."""
        later = self._app.store.calls.of_session(self._miss.session, self._miss.at, until)
        return next((ToolId(each.tool) for each in later if each.outcome == "ok"), None)

    def find(self) -> Iterator[Fix]:
        """Yield every change that would have shown the tool."""
        miss, tool = self._miss, self.tool
        if tool is None:
            yield from self._bring_back()
        elif not self._app.policy.reach(self.profile).finds(tool):
            yield from self._let_through(tool)
        elif miss.noticed == "unknown_name":
            yield from self._rename(tool)
        elif miss.noticed != "shell" and self._is_listed_to_such(tool):
            return  # nobody has to search for it by now
        elif self.lifted == NAMED_NOW:
            return
        elif miss.cause == "offline" and (server := self._does_not_work) is not None:
            yield _ask_doctor(server)
        elif miss.cause not in _LIFTED:
            is_of_list = miss.noticed not in ("search", "nothing_found") and miss.cause not in ("gate", "unknown")
            if is_of_list:
                yield from self._list(tool)
            if miss.noticed == "shell" or (miss.noticed in ("discovery", "search", "nothing_found") and miss.rank != 1):
                yield from self._reword(tool)
            if not is_of_list:
                yield from self._list(tool)
            yield from self._learn()

    def _is_listed_to_such(self, tool: Tool) -> bool:
        """Return whether the list of the next client like this one has a tool."""
        return bool(self.is_listed) and tool.id in self._app.lists.foresee(self.profile, self._policy).shown

    # -- what keeps a tool away

    def _bring_back(self) -> Iterator[Fix]:
        """Yield what brings back a tool that the config leaves out, or that waits for the user."""
        app, name = self._app, self._miss.tool
        for server, exposed, own in app.store.approvals.refused("tool"):
            if name in (exposed, own):
                command = review_command(server)
                yield Fix("approve", f"approve it: {command}", command=command)
                return
        found = app.catalog.namespaces.split(name) if name else None
        gone = app.catalog.meanings.why_gone(name) if name else None
        server = gone.upstream if gone is not None else found[0] if found is not None else ""
        if server in app.config.disabled:
            yield _fix(
                "enable",
                f"enable server {server} (foretool enable {shlex.quote(server)})",
                ConfigChange(("servers", server, "disabled"), False),
            )
        elif server in app.config.servers and gone is not None:
            own = found[1] if found is not None else name
            yield from self._include(server, own)
        elif server in app.config.broken or (server and server in app.upstreams.unlisted()):
            yield _ask_doctor(server)

    def _include(self, server: str, own: str) -> Iterator[Fix]:
        """Yield what makes a server offer one of its tools again."""
        entry = self._app.config.servers[server].entry
        keys = ("servers", server)
        changes = []
        if matches(own, entry.exclude):
            kept = [each for each in entry.exclude if not matches(own, (each,))]
            changes.append(ConfigChange((*keys, "exclude"), kept))
        if not matches(own, entry.include):
            changes.append(ConfigChange((*keys, "include"), pattern_of(own), adds=True))
        if changes:
            yield _fix("enable", f"let server {server} offer {own}", *changes)

    def _let_through(self, tool: Tool) -> Iterator[Fix]:
        """Yield what lets calls of a tool through that a rule or the profile refuses."""
        profile, reach = self.profile, self._app.policy.reach(self.profile)
        if not reach.admits(tool.upstream):
            change = ConfigChange(("foretool", "profiles", profile.name, "servers"), tool.upstream, adds=True)
            yield _fix("profile", f"add server {tool.upstream} to profile {profile.name}", change)
            return
        verdict = reach.verdict(tool)
        entry = self._app.config.servers[tool.upstream].entry
        places: list[tuple[Keys, tuple[str, ...], set[str]]] = [
            (("servers", tool.upstream, "deny"), entry.deny, {tool.name})
        ]
        if profile.name:
            places.append((("foretool", "profiles", profile.name, "deny"), reach.own_denials, {tool.id}))
        changes = []
        for keys, patterns, names in places:
            # A class of tools is more than this one, so it is not taken away for it.
            kept = [each for each in patterns if each.startswith("@") or not any(matches(n, (each,)) for n in names)]
            if len(kept) != len(patterns):
                changes.append(ConfigChange(keys, kept))
        if changes and verdict.denied:
            yield _fix("rule", verdict.lift or f"allow {tool.id}", *changes)

    # -- what shows a tool

    def _list(self, tool: Tool) -> Iterator[Fix]:
        app, profile = self._app, self.profile
        if tool.id in app.lists.foresee(profile, self._policy).told:
            return
        foretool = ("foretool",)
        own = ("foretool", "profiles", profile.name) if profile.name else foretool
        pinned = app.lists.foresee(replace(profile, pin=(*profile.pin, tool.id)), self._policy).tokens
        as_now = app.lists.foresee(profile, self._policy).tokens
        yield _fix("pin", f"pin {tool.id}", ConfigChange((*own, "pin"), tool.id, adds=True),
                   tokens=pinned if pinned != as_now else 0)  # fmt: skip
        budget = self._least_budget(tool)
        if budget:
            larger = app.lists.foresee(profile.with_budget(budget), self._policy)
            keys = self._keys_of("list_tokens")
            what = f"raise list_tokens from {profile.list_tokens:,} to {budget:,}"
            yield _fix("budget", what, ConfigChange(keys, budget), tokens=larger.tokens)
        frozen = app.lists.foresee(profile, "frozen")
        if self._policy == "growing" and tool.id in frozen.told:
            what = "set policy to frozen: its list keeps no tokens for what it gains"
            yield _fix("policy", what, ConfigChange(self._keys_of("policy"), "frozen"), tokens=frozen.tokens)

    def _keys_of(self, setting: str) -> tuple[str, ...]:
        """Return where a setting of the profile's list is written."""
        entry = self._app.config.settings.profiles.get(self.profile.name)
        if self.profile.name and entry is not None and getattr(entry, setting) is not None:
            return ("foretool", "profiles", self.profile.name, setting)
        return ("foretool", setting)

    def _least_budget(self, tool: Tool) -> int:
        """Return the least budget with which the list has a tool that it lacks now, in steps; 0 if none that is offered
        has it."""
        low = self.profile.list_tokens

        def lists(budget: int) -> bool:
            profile = self.profile.with_budget(budget)
            return budget != low and self._app.lists.would_tell(profile, self._policy, tool.id)

        high = max(low, _STEP)
        while not lists(high):
            low, high = high, high * 2
            if low >= _MOST_BUDGET:
                return 0
        while high - low > _STEP:
            middle = (low + high) // 2
            low, high = (low, middle) if lists(middle) else (middle, high)
        rounded = -(-high // _STEP) * _STEP
        return rounded if lists(rounded) else high

    def _rename(self, tool: Tool) -> Iterator[Fix]:
        """Yield the alias that makes a name right which no tool has. Names that look alike may mean the contrary
        ("git_reset" and "git_merge"): only a tool that was called then, and worked, is known to be what was meant."""
        if self._first_that_worked(self._miss.at + _AFTER_S) != tool.id:
            return
        namespaces = self._app.catalog.namespaces
        found = namespaces.split(self._miss.tool)
        if found is None or found[0] != tool.upstream or namespaces.refusal(tool.upstream, found[1]) is not None:
            return
        if SequenceMatcher(None, found[1], tool.name, autojunk=False).ratio() < _MISSPELT:
            yield alias(self._app.catalog, tool, found[1])

    def _reword(self, tool: Tool) -> Iterator[Fix]:
        """Yield a description that has the words of the search, and a name that has one of them."""
        if not self._was_called_next(tool):
            return
        is_doubtful = not self._is_near(tool)
        if (text := describe_for(tool, self._miss.query)) is not None:
            change = ConfigChange(("servers", tool.upstream, "tools", tool.name, "description"), text)
            words = cut_words(self._miss.query, SHOWN_WORDS)
            fix = _fix("description", f'add to the description of {tool.id}: "{FOR} {words}"', change)
            yield replace(fix, is_doubtful=is_doubtful)
        if self._miss.noticed == "shell":
            return  # the words of a command name no tool
        if (name := name_for(self._app.catalog, tool, [self._miss.query])) is not None:
            yield replace(alias(self._app.catalog, tool, name), is_doubtful=is_doubtful)

    def _was_called_next(self, tool: Tool) -> bool:
        """Return whether the words of a search may be for a tool: its call came before any other call, and before a
        search for something else. What is not on record tells nothing."""
        miss, store = self._miss, self._app.store
        since = self._search.at if self._search is not None else miss.at
        called = (each for each in store.calls.of_session(miss.session, since, since + _AFTER_S) if each.at >= since)
        first = next(called, None)
        if miss.noticed == "shell" or first is None:
            return True
        between = store.discoveries.of_session(miss.session, since, first.at)
        is_other = any(each.at > since and not are_alike(each.task, miss.query) for each in between)
        return first.tool in (tool.id, miss.tool) and not is_other

    def _is_near(self, tool: Tool) -> bool:
        """Return whether a tool is near to the words of a search: it matched, or nearly, or says one of them."""
        miss = self._miss
        if miss.noticed == "shell" or 0 < miss.rank <= NEAR:
            return True
        if self._search is not None and any(each.tool in (tool.id, miss.tool) for each in self._search.matches):
            return True
        return bool(set(terms(miss.query)) & set(terms(f"{tool.name} {read_description(tool)}")))

    def _learn(self) -> Iterator[Fix]:
        """Yield learning, where there is something to learn from that no model has read."""
        if self._miss.cause not in ("rank", "gate", "unknown") or self._app.store.artifacts.served():
            return
        if len(self._app.store.discoveries.recent(_LEAST_TASKS)) >= _LEAST_TASKS:
            yield Fix("learn", "learn from the tasks on record which tools they need", command="foretool learn")


def alias(catalog: Catalog, tool: Tool, name: str) -> Fix:
    change = ConfigChange(("servers", tool.upstream, "tools", tool.name, "name"), name)
    return Fix("alias", f"let {tool.id} be called {catalog.overrides.exposed(tool.upstream, name)}", (change,))


def _ask_doctor(server: str) -> Fix:
    command = shlex.join(("foretool", "doctor", server))
    return Fix("doctor", f"it says why server {server} does not work", command=command)


def _fix(kind: Kind, what: str, *changes: ConfigChange, tokens: int = 0) -> Fix:
    return Fix(kind, what, changes, list_tokens=tokens)

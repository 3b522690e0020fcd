"""The one decision about what may reach what: the servers of a profile, the tools it finds, and the calls that run.

Every call asks here, however it names its tool, and so does every search and every list. Nothing here does I/O. A
decision is made once for each definition of a tool, and again when the config changes or the definition does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.config.servers import Server, exactness, matches, pattern_of
from foretool.server.config.settings import CLASSES, Bridges, Risk, ServerEntry, Settings
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.apps import is_for_model, is_for_pages
from foretool.storage.records import Tool

Asked = Literal["name", "page", "call_tool", "call_tool_write"]
"""How a call names its tool: by its own name, by that from a client that shows pages (MCP Apps), so that a page may be
the caller, or through one of our two bridges."""
BridgeName = Literal["call_tool", "call_tool_write"]
Source = Literal["config", "server", "none"]
"""Who rated a tool: the user (`risk` of the server's entry), the server (annotations), or nobody."""

Sees = Callable[[str, Tool], bool]
"""Tells whether a server has listed a tool to a person."""

Pages = Callable[[], frozenset[str]]
"""Returns the servers whose tools have pages (MCP Apps). Where nobody knows them, there is none of these, and every
definition is read."""

FOR_ITS_PAGE: Final = "its server offers it to its own page alone, not to models"
"""Why no model gets a tool (MCP Apps)."""
NOT_IN_USE: Final = "was removed from the config or disabled"
"""Why a server that is being ended answers nothing more."""
_MOST_REACHES: Final = 2000
"""Profiles whose verdicts are kept; where people see different tools, each of them has their own."""
MOST_KEPT: Final = 20_000
"""Verdicts that are kept for a profile; a server that changes its definitions all the time would add more for ever."""
_WORST: Final[tuple[Risk, ...]] = ("read", "write", "destructive")
_NO_RULES: Final = ServerEntry()


class _Annotated(Struct):
    """The member of a definition that says how dangerous its tool is."""

    annotations: Any = None


_annotated = msgspec.json.Decoder(_Annotated)


class Verdict(Struct, frozen=True):
    """What config and server say about one tool in one profile: its risk, and whether its calls run."""

    risk: Risk
    source: Source
    denied: str = ""
    """The rule that denies it, in words; "" if none does."""
    lift: str = ""
    """The change of the config that would let it through."""
    allowed: bool = False
    """A rule allows it, and none denies it."""
    bridge: BridgeName = "call_tool"
    """Which of our tools calls it."""

    @property
    def may_destroy(self) -> bool:
        """Whether it counts as destructive where a rule asks: an unmarked tool does (the protocol's default)."""
        return self.risk == "destructive" or self.source == "none"


class Run(Struct, frozen=True):
    """The call goes to its upstream."""

    verdict: Verdict


class Confirm(Struct, frozen=True):
    """The call goes to its upstream once the user has agreed to the tool in this session."""

    verdict: Verdict
    setting: str
    """The value of `confirm` that asks."""


class Refuse(Struct, frozen=True):
    """The call does not go on."""

    verdict: Verdict
    reason: str
    """Why, for the model and the user."""
    change: str = ""
    """The change of the config that would let it through; "" if the caller itself can do better."""
    hides: bool = False
    """The tool does not exist for this client, so the call is answered like that of an unknown name."""
    cause: Literal["denied", "gone"] = "denied"
    """Of the miss: a rule refuses the call, or the server of the tool is not in use any more."""


Decision = Run | Confirm | Refuse


GivenTo = Callable[[str], tuple[str, str] | None]
"""Returns the server and the own name of the tool that was ever given a name."""


def rule_names(tool: Tool, prefix: str) -> set[str]:
    """Return the names by which rules and pins may mean a tool. It may have lost its plain name to another one, or be
    shown under a prefix or an alias; a rule against its server's and its own name still means it."""
    return {tool.id, f"{tool.upstream}__{tool.name}", f"{prefix or tool.upstream}__{tool.name}"}


class Reach:
    """What the clients of one profile may find and call, by the config as it is at one time."""

    def __init__(
        self, profile: Profile, servers: Mapping[str, Server], settings: Settings, sees: Sees | None = None,
        pages: Pages | None = None, given_to: GivenTo = lambda name: None,
    ) -> None:  # fmt: skip
        self.profile = profile
        self._given_to = given_to
        self._sees = sees
        self._pages = pages
        self._personal = frozenset(name for name, each in servers.items() if each.per_user is not None)
        self._settings = settings
        self._servers = servers
        self._admitted: dict[str, bool] = {}
        self._denying = frozenset(name for name, each in servers.items() if profile.deny or each.entry.deny)
        self._verdicts: dict[tuple[str, ...], Verdict] = {}
        self._decisions: dict[tuple[str, ...], Decision] = {}

    def admits(self, server: str) -> bool:
        """Return whether the profile has a server: its tools, resources, prompts, subscriptions and log lines."""
        if (found := self._admitted.get(server)) is None:
            found = self._admitted[server] = self.profile.admits(server)
        return found

    def finds(self, tool: Tool) -> bool:
        """Return whether a tool may be listed, found and named."""
        # Without a rule nothing is read: a warm start asks this of thousands of tools.
        if not self.admits(tool.upstream) or (tool.upstream in self._personal and not self.sees(tool)):
            return False
        if tool.upstream in self._denying and self.verdict(tool).denied:
            return False
        has_none = self._pages is not None and tool.upstream not in self._pages()
        return has_none or is_for_model(tool.definition)

    def sees(self, tool: Tool) -> bool:
        """Return whether a tool of a server with a token for each person was listed to the person of this profile."""
        return tool.upstream not in self._personal or self._sees is None or self._sees(self.profile.person, tool)

    @property
    def pins(self) -> tuple[str, ...]:
        """The patterns of tools that are always in the list."""
        return *self._settings.pin, *self.profile.pin

    def denies_some(self, server: str) -> bool:
        """Return whether a rule may deny a tool of this server, or only some people have it."""
        return server in self._denying or server in self._personal

    def hides_some(self, server: str) -> bool:
        """Return whether some tool of this server may not be found by clients of this profile."""
        return self.denies_some(server) or self._pages is None or server in self._pages()

    @property
    def page_servers(self) -> frozenset[str]:
        """The servers of this profile whose tools have pages."""
        return frozenset(filter(self.admits, self._pages() if self._pages is not None else ()))

    def lets_pages_call(self, tool: Tool) -> bool:
        """Return whether pages may call a tool: its server lets them, and no other server has pages. A host has one
        list for all servers behind us, and asks that list alone what a page may call."""
        if self.page_servers != {tool.upstream} or not is_for_pages(tool.definition):
            return False
        return not isinstance(self.decide(tool, "page"), Refuse)

    @property
    def own_denials(self) -> tuple[str, ...]:
        """The patterns of the profile's `deny`, for whoever edits them."""
        return self.profile.deny

    @property
    def trusts_some(self) -> bool:
        """Whether a rule may allow `call_tool` to run what is not read-only."""
        return bool(self.profile.allow) or any(
            each.entry.allow for name, each in self._servers.items() if self.admits(name)
        )

    @property
    def bridges(self) -> Bridges:
        """Whether there are two bridges, by risk, or one for everything."""
        return self._settings.bridges

    @property
    def offers_call_tools(self) -> bool:
        """Whether there is a tool that runs several calls in one turn."""
        return self._settings.call_tools

    def verdict(self, tool: Tool) -> Verdict:
        key = (tool.id, tool.upstream, tool.name, tool.schema_hash)
        if (found := self._verdicts.get(key)) is None:
            if len(self._verdicts) >= MOST_KEPT:
                self._verdicts.clear()
            found = self._verdicts[key] = self._judge(tool)
        return found

    def decide(self, tool: Tool, asked: Asked) -> Decision:
        if tool.upstream in self._personal and self.admits(tool.upstream) and not self.sees(tool):
            # Never kept: the next list of the person may have it.
            reason = f"server {tool.upstream!r} does not list it to you"
            return Refuse(self.verdict(tool), reason, hides=True)
        key = (tool.id, tool.upstream, tool.name, tool.schema_hash, asked)
        if (found := self._decisions.get(key)) is None:
            if len(self._decisions) >= MOST_KEPT:
                self._decisions.clear()
            found = self._decisions[key] = self._decide(tool, asked)
        if isinstance(found, Refuse) or is_for_model(tool.definition):
            return found
        return self._decide_for_page(tool, asked, found)  # never kept: another server may have pages later

    def _decide_for_page(self, tool: Tool, asked: Asked, decision: Decision) -> Decision:
        """Decide on a call of a tool that its server offers to its own page alone."""
        if asked != "page":
            return Refuse(decision.verdict, FOR_ITS_PAGE, hides=True)
        if others := sorted(self.page_servers - {tool.upstream}):
            reason = f"server {others[0]!r} has pages as well, and which page calls is not known"
            change = f"give server {tool.upstream!r} a profile without {others[0]!r}"
            return Refuse(decision.verdict, reason, change, hides=True)
        return decision

    def _decide(self, tool: Tool, asked: Asked) -> Decision:
        verdict = self.verdict(tool)
        if tool.upstream not in self._servers:
            # For as long as it is being ended, the catalog still has its tools.
            reason = f"server {tool.upstream!r} {NOT_IN_USE}"
            return Refuse(verdict, reason, "add its server again, or enable it", hides=True, cause="gone")
        if not self.admits(tool.upstream):
            profile = self.profile.name
            change = f"add {tool.upstream!r} to the servers of profile {profile!r}"
            return Refuse(verdict, f"it is not in profile {profile!r}", change, hides=True)
        if verdict.denied:
            reason = f"{verdict.denied} refuses it; only the user can change that"
            return Refuse(verdict, reason, verdict.lift, hides=True)
        if asked == "call_tool" and verdict.bridge != asked:
            return Refuse(verdict, f"call_tool runs read-only tools; call it with {verdict.bridge}, in the same way")
        return Confirm(verdict, self._settings.confirm) if self._asks(verdict) else Run(verdict)

    def _asks(self, verdict: Verdict) -> bool:
        confirm = self._settings.confirm
        if confirm == "never" or verdict.allowed:
            return False
        if confirm == "destructive":
            return verdict.may_destroy
        return confirm == "all" or verdict.risk != "read"

    def _judge(self, tool: Tool) -> Verdict:
        entry = self._entry(tool.upstream)
        risk, source = rate(tool, entry)
        rated = Verdict(risk, source)
        bridge: BridgeName = "call_tool" if risk == "read" or self.bridges == "one" else "call_tool_write"
        if not (entry.deny or entry.allow or self.profile.deny or self.profile.allow):
            return Verdict(risk, source, bridge=bridge)
        # A call by a name that the tool had before still reaches it, so a rule against that name means it too.
        had = {each for each in self.profile.deny if self._given_to(each) == (tool.upstream, tool.name)}
        names = rule_names(tool, entry.prefix or "") | had
        for whose, patterns, called in (
            (f"server {tool.upstream!r}", entry.deny, {tool.name}),
            (f"profile {self.profile.name!r}", self.profile.deny, names),
        ):
            if (rule := _matching_rule(patterns, called, rated)) is not None:
                lift = f'remove "{rule}" from "deny" of {whose}'
                if rule in CLASSES:
                    lift += f', or rate {pattern_of(tool.name)!r} in "risk" of server {tool.upstream!r}'
                return Verdict(risk, source, f'"{rule}" in "deny" of {whose}', lift, bridge=bridge)
        allowed = _matching_rule(entry.allow, {tool.name}, rated) or _matching_rule(
            self.profile.allow, {tool.id}, rated
        )
        return Verdict(risk, source, allowed=allowed is not None, bridge=bridge if allowed is None else "call_tool")

    def _entry(self, server: str) -> ServerEntry:
        found = self._servers.get(server)
        return found.entry if found is not None else _NO_RULES


class TrustPolicy:
    """Returns the `Reach` of each profile under the config in force."""

    def __init__(
        self, config: LiveConfig, sees: Sees | None = None, pages: Pages | None = None,
        given_to: GivenTo = lambda name: None,
    ) -> None:  # fmt: skip
        """`sees`: tells what the servers with a token for each person have listed to whom; None where nobody calls, and
        all of it is shown to the user of this machine."""
        self._config = config
        self._sees = sees
        self._pages = pages
        self._given_to = given_to
        self._read = config.now
        """The config that `_reaches` were made for."""
        self._reaches: dict[str, Reach] = {}

    def reach(self, profile: Profile) -> Reach:
        if self._read is not self._config.now:
            self._read = self._config.now
            self._reaches.clear()
        found = self._reaches.get(profile.key)
        if found is None or (found.profile is not profile and found.profile != profile):
            if len(self._reaches) >= _MOST_REACHES:
                self._reaches.clear()
            found = Reach(profile, self._read.servers, self._read.settings, self._sees, self._pages, self._given_to)
            self._reaches[profile.key] = found
        return found


def rate(tool: Tool, entry: ServerEntry) -> tuple[Risk, Source]:
    """Return how dangerous a tool is, and who says so. The user's word beats the server's.

    Of several patterns of the user the most exact one counts: the one with most letters that are not wildcards.
    """
    fitting = {pattern: risk for pattern, risk in entry.risk.items() if matches(tool.name, (pattern,))}
    if fitting:
        most = max(map(exactness, fitting))
        return max((fitting[each] for each in fitting if exactness(each) == most), key=_WORST.index), "config"
    hints = _annotations(tool)
    destroys = hints.get("destructiveHint")
    if destroys is True:
        return "destructive", "server"  # also where it claims to be read-only: the worse of the two counts
    if hints.get("readOnlyHint") is True:
        return "read", "server"
    return "write", "server" if destroys is False else "none"


def _annotations(tool: Tool) -> Mapping[str, Any]:
    if b'"annotations"' not in tool.definition:  # most tools have none, and the catalog spells the key like this
        return {}
    try:
        value = _annotated.decode(tool.definition).annotations
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the fast decoder refuses lone surrogates
        annotations = jsonrpc.fields(tool.definition).get("annotations")
        value = jsonrpc.decode_value(annotations) if annotations is not None else None
    return value if isinstance(value, dict) else {}


def _matching_rule(patterns: Iterable[str], names: Iterable[str], rated: Verdict) -> str | None:
    """Return the first pattern or class that a tool with these names fits."""
    for pattern in patterns:
        if pattern == "@write":
            fits = rated.risk != "read"
        elif pattern == "@destructive":
            fits = rated.may_destroy
        else:
            fits = any(matches(name, (pattern,)) for name in names)
        if fits:
            return pattern
    return None

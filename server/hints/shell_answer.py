"""Takes what a hook reports of a client's shell, and records which commands went round a tool.

A report holds programs and subcommands alone, and each of their words is looked up once more in the table of those that
may be reported: whoever writes to the socket brings no other word into the store. A command that a tool serves, listed
or hidden, is a miss with the cause `bypass`, once for each list of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from foretool.retrieval.ranking import Query
from foretool.server.catalog.search import Search
from foretool.server.clients.session import Session
from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.hints.shell_shape import MOST_SHAPES
from foretool.server.local.server import CallerLink, Hello, QuestionTalk, Service
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.records import ToolId

if TYPE_CHECKING:
    from foretool.retrieval.shell_table import Shape
    from foretool.server.catalog.catalog import Catalog

_RANKED: Final = 50
"""How many tools are ranked for a command."""
_MOST_BYTES: Final = 8_192
"""Bytes of a report: eight commands of three words, and the name of a folder."""
_AT_ONCE: Final = 8
"""Hooks that are served at a time; an agent runs few commands at once, and a flood waits for nobody else."""

Served = tuple[ToolId, int, int]
"""A tool that does what a command does, its rank for the words of the command, and how many tools were ranked."""


class ShellReports:
    """Records a miss for each shell command, reported by a client's hook, that a tool would have served."""

    def __init__(
        self, sessions: Callable[[str, str, str], Sequence[Session]], search: Search, catalog: Catalog,
        recorder: Recorder, policy: TrustPolicy, config: LiveConfig,
    ) -> None:  # fmt: skip
        """`sessions` returns those of a profile that a client's hook in a folder may speak of, the oldest first."""
        self._sessions = sessions
        self._search = search
        self._catalog = catalog
        self._recorder = recorder
        self._policy = policy
        self._config = config
        self._served: dict[tuple[str, Shape], Served | None] = {}
        """By profile and command, the tool that does the same: commands come again and again."""
        self._version = search.version
        """What `_served` was worked out from."""

    def service(self) -> Service:
        """Return what the local socket offers as `shell`."""
        return Service(self._open, limit=_MOST_BYTES, most=_AT_ONCE)

    def _open(self, link: CallerLink, hello: Hello) -> QuestionTalk:
        return QuestionTalk(link, lambda question, reply: self._answer(hello, question, reply))

    def _answer(self, hello: Hello, question: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
        shapes = read_report(question)
        reply({})
        profile = self._config.profile(hello.profile)
        folder, client = (str(question.get(key) or "") for key in ("cwd", "client"))
        session = self._session_of(profile.name, folder or hello.folder, client)
        if shapes and session is not None:
            self._note(shapes, profile, session)

    def _session_of(self, profile: str, folder: str, client: str) -> Session | None:
        """Return the session of the client that ran a command."""
        likely = self._sessions(profile, folder, client)
        return likely[-1] if likely else None  # two windows of one client have the same list

    def _note(self, shapes: Sequence[Shape], profile: Profile, session: Session) -> None:
        """Record which of these commands went round a tool."""
        for shape in shapes:
            found = self._find(shape, profile)
            if found is None or (tool := self._catalog.get(found[0])) is None:
                continue
            words = self._recorder.keep_text(" ".join(shape))
            miss = session.bypassed(tool, words, self._recorder.now(), *found[1:])
            if miss is not None:
                self._recorder.miss(miss)
        self._recorder.commit()

    def _find(self, shape: Shape, profile: Profile) -> Served | None:
        if self._version != self._search.version:
            self._version = self._search.version
            self._served.clear()
        key = (profile.name, shape)
        if key not in self._served:
            self._served[key] = self._look_up(shape, profile)
        return self._served[key]

    def _look_up(self, shape: Shape, profile: Profile) -> Served | None:
        from foretool.retrieval.shell_commands import find_served, search_words

        reach = self._policy.reach(profile)
        # Without usage and history: whether a tool does what a command does depends on neither.
        ranking = self._search.rank(Query((search_words(shape),), (), (), (), profile.name), reach.finds, _RANKED)
        if self._search.judge(ranking).level == "none":
            return None
        tool = find_served(shape, ranking, self._catalog.get, self._name_server)
        if tool is None:
            return None
        rank = next(place for place, each in enumerate(ranking.ranked, 1) if each.tool == tool.id)
        return tool.id, rank, len(ranking.ranked)

    def _name_server(self, upstream: str) -> tuple[str, ...]:
        """Return what the config calls a server: its prefix, its description, and the package that it runs."""
        server = self._config.now.servers.get(upstream)
        if server is None:
            return ()
        packages = (each.rpartition("/")[2] for each in server.args if "mcp" in each or "server" in each)
        return (self._catalog.namespaces.prefix(upstream), server.entry.description, *packages)


def read_report(question: dict[str, Any]) -> list[Shape]:
    """Read what a hook reports, without what the table lacks. Raises `ValueError`."""
    from foretool.retrieval.shell_table import is_reported

    commands = question.get("commands")
    if not isinstance(commands, list) or not all(isinstance(each, list) for each in commands):
        raise ValueError("commands: expected a list of lists")
    shapes = [tuple(each) for each in commands[:MOST_SHAPES] if all(isinstance(word, str) for word in each)]
    return [shape for shape in dict.fromkeys(shapes) if is_reported(shape)]

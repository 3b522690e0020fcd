"""Plays recorded tasks again, one after the other, through the parts that serve clients.

The application is the one that a proxy builds (`server.app`), over the store as it was then (`past`). Its lists, its
search, its answers, the growth of its lists, its hints and its misses are what a client gets. Only the client is
played: it calls the tools that it called, in their order. Where it does not see a tool, it asks `discover_tools` in the
words that it searched with then, once per task and tool, unless a text has named the tool before. If these words are
not on record, it searches with the tool's own. It calls a tool that it does not see through a bridge.

A command of the client's shell that went round a tool is a miss again, unless the client sees the tool now.

Tokens count as in `recording.costs`: the list at each turn, an answer or a hint at each turn after it came. What a
client sees is a list of its time, so no list knows what it is tried on. What that list costs is what the next list of
the same settings takes (`NextLists`): lists of the time before tools were known or used are smaller than those that a
change brings now.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from foretool.desk.replay.encoders import OpenedEncoders
from foretool.desk.replay.past import Before, PastStore
from foretool.desk.replay.queries import RecordedTask, last_tasks
from foretool.server.app import App
from foretool.server.catalog import models
from foretool.server.catalog.search import RANKED, Search
from foretool.server.clients.conversation import Conversation
from foretool.server.clients.session import Session
from foretool.server.config.loader import Config, Profile
from foretool.server.discovery import arguments as discovery_arguments
from foretool.server.discovery.arguments import Arguments
from foretool.server.discovery.schemas import summarize
from foretool.server.lists.growth import SessionList, ToolList
from foretool.server.lists.maker import View
from foretool.server.lists.order import DEPTH
from foretool.server.lists.policy import RELIST_SHARE, RELISTERS, relist_share
from foretool.storage.records import Call, ListReason, Policy, Prompt, Tool, ToolId
from foretool.storage.store import Store

_STEP_S: Final = 0.001
"""The time between two calls of a task: when exactly they came is not known."""
_ANSWER_TOKENS: Final = 600
"""Tokens of the answer to a search in vain, until an answer was given to compare with."""


class PlayedTask(Struct):
    """What one task took under one config."""

    key: str
    """That of the episode."""
    calls: int = 0
    hidden: int = 0
    """Calls of tools that the list lacked when they were wanted."""
    misses: int = 0
    """As a proxy records them: a hidden tool that no hint had named, once per list."""
    discoveries: int = 0
    unreachable: int = 0
    """Calls of tools that the settings do not let through, or that no server has."""
    guessed: int = 0
    """Searches whose words are not on record, so the tool's own words stand for them."""
    listed: int = 0
    """Tokens of the list that such a client gets next, with what has grown on it when the task began."""
    read: int = 0
    """Tokens of the list, answers and hints, counted at each turn in which they stood before the model."""
    missed: tuple[ToolId, ...] = ()
    """The tool of each miss."""


class NextLists:
    """The lists that new clients get under one config, as `foretool misses` and the page name them."""

    def __init__(self, config: Config, kept: Store, like: Search) -> None:
        """`like`: a search over the same tools."""
        self._app = App(config, kept)
        self._like: Search | None = like
        self._views: dict[tuple[str, Policy], View] = {}

    def read(self, profile: Profile, policy: Policy) -> View:
        """Return the list of the next client of a profile."""
        key = (profile.key, policy)
        if self._like is not None:
            self._app.search.index_like(self._like)
            self._like = None
        if key not in self._views:
            self._views[key] = self._app.lists.foresee(profile, policy)
        return self._views[key]


class Seat:
    """The client of one recorded session, as the played proxy sees it."""

    is_program = False
    """A program is played as if a model read its answers."""

    def __init__(self, app: App, task: RecordedTask, ends_at: float) -> None:
        record = task.session
        self.profile = app.live.profile(record.profile)
        self.told_servers = frozenset(each.name for each in app.upstreams.admitted(self.profile))
        # Its misses have no cause: half of the time of a replay would go into finding it.
        self.session = Session(record)
        self.ends_at = ends_at
        self.tools = ToolList(self, app.lists, app.live)
        self.known: dict[str, set[ToolId]] = {}
        """By conversation, the tools that a text has named."""
        share = relist_share(app.recorder.client(record.client, record.version, record.era))
        follows = record.client.lower() in RELISTERS if share is None else share >= RELIST_SHARE
        self.lists_again = follows and record.era == "legacy"
        """Whether it lists again when it is told that its list has changed."""

    def lists(self) -> list[SessionList]:
        return [self.session.list]

    def notify(self, kind: str, method: str) -> bool:
        return False  # nobody waits for it: `Player` lists again where the client does


class Player:
    """Plays tasks under one config. Tasks come in the order of time."""

    def __init__(
        self, config: Config, kept: Store, before: Before, tasks: Sequence[RecordedTask], encoders: OpenedEncoders,
        like: Search | None = None,
    ) -> None:  # fmt: skip
        """`before`: what had happened before the first task; `like`: a search over about the same tools."""
        self._past = PastStore(kept, before)
        self.app = App(config, self._past, self._past.now)
        self.next_lists = NextLists(config, kept, self.app.search)
        self._ends = last_tasks(tasks)
        self._seats: dict[str, Seat] = {}
        self._served: dict[str, int] = {}
        self._version = 0
        """How often something had been learned when that was last looked at."""
        self._answers: list[int] = []
        """Tokens of the answers so far."""
        if like is not None:
            self.app.search.index_like(like)
        models.install_wordings(self.app.search, self._past)
        encoders.install(config.settings, self.app, kept)
        self.app.search.is_wanted = True

    def close(self) -> None:
        """Forget everything that was played."""
        self._past.close()

    def play(self, task: RecordedTask) -> PlayedTask:
        """Return what a task takes under this config, after those that were played before it."""
        app, episode = self.app, task.episode
        self._past.time = max(self._past.time, episode.at)
        self._follow_models()
        app.lists.advance()
        seat = self._take_seat(task)
        played = PlayedTask(episode.key)
        run = _Run(self, seat, seat.session, task, played)
        played.listed = run.listed
        self._past.time += _STEP_S  # a list is there before the first call
        for tool in episode.failed:
            self._record(seat.session, tool, "tool_error")
        run.read_prompt()
        for place, name in enumerate(episode.calls):
            run.call(name, episode.arguments[place] if episode.arguments else "")
            self._past.time += _STEP_S
        for name in task.bypassed:
            run.go_round(name)
        app.recorder.commit()
        if task.is_last:
            app.recorder.end_session(task.session.key)
            del self._seats[task.session.key]
        return played

    def _follow_models(self) -> None:
        """Serve the models that had been promoted by now; a learning run begins an epoch."""
        if (version := self._past.artifacts.version) == self._version:
            return
        self._version = version
        numbers = {kind: each.number for kind, each in self._past.artifacts.served().items()}
        if numbers != self._served:
            models.install_models(self.app.search, self._past)
            self._served = numbers
        self.app.lists.forget()

    def _take_seat(self, task: RecordedTask) -> Seat:
        """Return the client of a task; a new one lists its tools, an old one only if its list is not current."""
        key, app = task.session.key, self.app
        seat = self._seats.get(key)
        if seat is None:
            now = self._past.now()
            others = [each for each in self._seats.values() if each.profile.name == task.session.profile]
            if not any(each.ends_at >= now for each in others):
                app.lists.begin_session(task.session.profile)
            app.recorder.begin_session(task.session)
            seat = self._seats[key] = Seat(app, task, self._ends.get(key, now))
            give_list(seat, "list")
        elif seat.lists_again and seat.tools.is_stale():
            give_list(seat, "epoch")
        return seat

    def _record(self, session: Session, tool: ToolId, outcome: Any, **more: Any) -> None:
        given = {"via": "name", "hidden": False, "arguments": "", "discovery": 0, "handle": "", **more}
        settled = session.settle(given.pop("missed", None))
        upstream = found.upstream if (found := self.app.catalog.get(tool)) is not None else ""
        call = Call(
            session=session.record.key, at=self._past.now(), tool=tool, upstream=upstream, outcome=outcome,
            took_ms=0.0, sent=True, **given,
        )  # fmt: skip
        self.app.recorder.call(call, settled.revealed)
        self.app.recorder.settle(settled.new, settled.changed)


def give_list(seat: Seat, reason: ListReason) -> None:
    """Give a client its list, and record it."""
    for shown in seat.lists():
        shown.deliver()
        seat.tools.view(shown)
        seat.tools.record(shown, reason)


class _Run:
    """One task while it is played."""

    def __init__(self, player: Player, seat: Seat, session: Session, task: RecordedTask, played: PlayedTask) -> None:
        self._player = player
        self._app = player.app
        self._seat, self._session, self._task, self._played = seat, session, task, played
        self._chat: Conversation = session.conversations.of(task.handle)
        self._known = seat.known.setdefault(task.handle, set())
        self._reach = player.app.policy.reach(seat.profile)
        self._said = 0
        self._searched = 0

    @property
    def listed(self) -> int:
        """The tokens of the next list of such a client, with what has grown on the one that it has."""
        shown = self._session.list
        view = self._player.next_lists.read(self._seat.profile, self._seat.tools.policy(shown))
        new = (tool for tool in shown.grown[: shown.delivered] if tool not in view.shown)
        return view.tokens + sum(map(self._app.catalog.tokens, new))

    def read_prompt(self) -> None:
        """Have the list grow for the prompt, and read what its hook shows."""
        text = self._task.prompt
        if not text:
            return
        app, session = self._app, self._session
        prompt = Prompt(app.recorder.now(), text)
        app.store.tasks.add_prompt(prompt)
        answers = app.answering.prompt_answers
        asked = answers.begin(prompt, self._seat.profile, session)
        best = app.search.rank(asked, self._reach.finds, RANKED)
        hint = answers.write(prompt, self._seat.profile, session, best)
        self._said += hint.tokens if hint.tools else 0
        if self._seat.tools.policy(session.list) == "growing":
            ranking = app.search.rank(asked, self._reach.finds, DEPTH)
            is_sure = app.search.judge(ranking).level in ("high", "medium")
            self._seat.tools.grow_for_prompt(session.list, ranking.ranked, is_sure=is_sure)
            self._list_again()

    def call(self, name: ToolId, arguments: str) -> None:
        """Call a tool, after a search if the client does not know of it."""
        played, session = self._played, self._session
        played.calls += 1
        tool = self._app.catalog.find(name)
        if tool is None or not self._reach.finds(tool):
            self._note_unreachable(name)
            return
        if not session.list.sees(tool.id):
            played.hidden += 1
            if tool.id not in self._known | self._chat.hinted and not session.list.names(tool.id):
                self._search(tool)
        self._turn()
        via = "name" if session.list.sees(tool.id) else "bridge"
        missed, forward = session.call(tool, via, self._app.recorder.now(), self._chat)  # type: ignore[arg-type]
        if missed is not None:
            # By the name that is on record: the same tool may have another one under another config.
            self._note_misses([name])
        self._player._record(
            session, tool.id, "ok", via=via, hidden=forward.hidden, arguments=arguments,
            discovery=forward.discovery, handle=self._chat.handle, missed=missed,
        )  # fmt: skip
        self._look_ahead(via)

    def go_round(self, name: ToolId) -> None:
        """Run the command that went round a tool, unless the client sees the tool or knows of it by then."""
        tool, shown = self._app.catalog.find(name), self._session.list
        if tool is None or shown.sees(tool.id) or shown.names(tool.id) or not self._reach.finds(tool):
            return
        if tool.id not in self._known | self._chat.hinted:
            self._note_misses([name])

    def _turn(self) -> None:
        """Count one turn of the model."""
        self._played.read += self.listed + self._said

    def _note_unreachable(self, name: ToolId) -> None:
        """Count a call that nothing lets through: the client searches once, in vain."""
        self._played.unreachable += 1
        self._turn()
        if name not in self._known:
            self._known.add(name)
            self._played.discoveries += 1
            self._said += self._mean_answer()
            self._note_misses([name])

    def _note_misses(self, tools: Sequence[ToolId]) -> None:
        self._played.misses += len(tools)
        self._played.missed += tuple(tools)

    def _search(self, wanted: Tool) -> None:
        played, app, session = self._played, self._app, self._session
        self._turn()
        played.discoveries += 1
        self._known.add(wanted.id)  # whatever the answer lacks, the recorded task went on with the right call
        words = self._task.searches
        if not words:
            played.guessed += 1
            words = (f"{wanted.name.replace('_', ' ')}: {summarize(wanted.definition)}",)
        text = words[min(self._searched, len(words) - 1)]
        self._searched += 1
        arguments = Arguments(task=text)
        started = time.perf_counter()
        self._chat.note_task(arguments.lines, app.recorder.now())
        query = discovery_arguments.query(
            arguments, self._chat.steps, self._chat.servers_in_use(), self._seat.profile.name
        )
        ranking = app.search.rank(query, self._reach.finds, max(RANKED, arguments.wanted))
        kept, answer = app.answering.discovery.answer_search(
            self._seat, session, self._chat, arguments, query, ranking, started
        )
        self._known.update(match.tool for match in answer.matches)
        self._said += answer.tokens
        self._player._answers.append(answer.tokens)
        hint = app.answering.predictor.hint(
            self._seat, session, self._chat, app.answering.predictor.predict(self._chat)
        )
        if hint is not None:
            app.answering.predictor.note_shown(session, self._chat, hint)
            self._said += hint.tokens
        self._seat.tools.grow_for_discovery(session.list, kept)
        self._list_again()

    def _look_ahead(self, via: str) -> None:
        """Have the list grow for what comes next, and read the hint behind the answer of a bridge."""
        predictor = self._app.answering.predictor
        if not predictor.is_ready:
            return
        prediction = predictor.predict(self._chat)
        self._seat.tools.grow_for_next(self._session.list, prediction)
        hint = predictor.hint(self._seat, self._session, self._chat, prediction)
        if hint is not None and via == "bridge":
            predictor.note_shown(self._session, self._chat, hint)
            self._said += hint.tokens
        self._list_again()

    def _list_again(self) -> None:
        """Fetch the list that has grown, as far as the client does so."""
        if self._seat.lists_again:
            self._session.list.deliver()

    def _mean_answer(self) -> int:
        answers = self._player._answers
        return round(sum(answers) / len(answers)) if answers else _ANSWER_TOKENS

"""Answers `discover_tools`: searches for the task, records what was found, and answers with it."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.search import RANKED, Search
from foretool.server.clients.conversation import Conversation
from foretool.server.clients.exchange import Exchange, ListOwner
from foretool.server.clients.session import Lookup, Session
from foretool.server.config.loader import Profile
from foretool.server.discovery import answer as discovery_answer
from foretool.server.discovery import arguments as discovery_arguments
from foretool.server.discovery.answer import Answer, AnswerWriter
from foretool.server.discovery.answer_shape import READY, tools_named
from foretool.server.discovery.arguments import Arguments
from foretool.server.discovery.exemplars import Exemplars
from foretool.server.discovery.judge import Judge
from foretool.server.discovery.skill_search import SkillSearch
from foretool.server.hints.prediction import Predictor
from foretool.server.methods.skills import SkillOffer
from foretool.server.protocol import translate
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.approvals import review_command
from foretool.server.trust.policy import Reach, TrustPolicy
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.records import Discovery

if TYPE_CHECKING:
    from foretool.retrieval.ranking import Query, Ranking

_WAITING: Final = 200
"""Answers that wait at most for the ranks of tokens, which a child process writes after the first search of all."""


class _Answer(NamedTuple):
    session: Session
    chat: Conversation
    discovery: int
    texts: Sequence[str]


class AnswerTokens:
    """Corrects what was recorded of answers."""

    def __init__(self, count_text: Callable[[str], int | None], recorder: Recorder) -> None:
        """`count_text` returns the tokens of a text, None as long as it cannot count."""
        self._count_text = count_text
        self._recorder = recorder
        self._waiting: deque[_Answer] = deque(maxlen=_WAITING)

    def add(self, session: Session, chat: Conversation, discovery: int, texts: Sequence[str]) -> None:
        """Record the texts of an answer, which are counted in the loop's next round."""
        self._waiting.append(_Answer(session, chat, discovery, texts))
        asyncio.get_running_loop().call_soon(self.count)

    def count(self) -> None:
        while self._waiting:
            session, chat, discovery, texts = self._waiting[0]
            counts = [count for text in texts if (count := self._count_text(text)) is not None]
            if len(counts) < len(texts):
                return
            self._waiting.popleft()
            self._recorder.recount_discovery(discovery, sum(counts))
            settled = session.recount(discovery, sum(counts), chat)
            self._recorder.settle(settled.new, settled.changed)


_SAY_WHAT: Final = (
    'Say what the tool has to do: discover_tools(task="list the files of a folder"), or'
    ' discover_tools(names=["server__tool"]) for tools that you know by name.'
)
"""The answer to a search that names nothing."""
_WORDS: Final = re.compile(r"[\W_]+")
"""What stands between the words of a name."""


class DiscoverTools:
    """Answers `discover_tools` and keeps which conversation a search belongs to."""

    def __init__(
        self, upstreams: UpstreamRegistry, catalog: Catalog, search: Search, answers: AnswerWriter, recorder: Recorder,
        predictor: Predictor, policy: TrustPolicy, exemplars: Exemplars, tokens: AnswerTokens, skills: SkillSearch,
        judge: Judge,
    ) -> None:  # fmt: skip
        self._skills = skills
        self._judge = judge
        self._tokens = tokens
        self._upstreams = upstreams
        self._catalog = catalog
        self._search = search
        self._answers = answers
        self._recorder = recorder
        self._predictor = predictor
        self._policy = policy
        self._exemplars = exemplars

    def start(self, exchange: Exchange, raw: Raw) -> None:
        """Answer one call of `discover_tools`; `raw` is its arguments."""
        arguments = discovery_arguments.read_arguments(raw)
        if not arguments.lines and not arguments.names:
            exchange.tool_error(_SAY_WHAT)
            return
        self.join_conversation(exchange, arguments.handle)
        # What has not been listed cannot be found, and a wrong answer costs more than waiting.
        self._upstreams.when_searchable(
            lambda: exchange.attempt(self._start, exchange, arguments), exchange.client.profile
        )

    def _start(self, exchange: Exchange, arguments: Arguments) -> None:
        """Read the skills that are asked for by name, then search for the rest, and for the tools that they name."""
        if arguments.names:
            self._skills.prepare(exchange, lambda: self._read_skills(exchange, arguments))
        else:
            self._find(exchange, arguments)

    def _read_skills(self, exchange: Exchange, arguments: Arguments) -> None:
        client = exchange.client
        uris, others = self._skills.pick(client, client.profile, arguments.names)
        if not uris:
            self._find(exchange, arguments)
            return

        def go(at: Exchange, texts: list[str], tools: list[str]) -> None:
            names = tuple(dict.fromkeys((*others, *tools)))
            if names or arguments.lines:
                self._find(at, replace(arguments, names=names), before=texts)
            else:
                at.own_result(translate.text_result(*texts))

        self._skills.read(exchange, uris, go)

    def search_for_name(self, exchange: Exchange, name: str, refusal: str) -> None:
        """Answer a bridged call of a tool that does not exist with the refusal and with what a search for the words of
        the name finds, so that the next call can be the right one."""
        words = _WORDS.sub(" ", self._recorder.without_secrets(name)).strip()
        if not words:
            exchange.tool_error(refusal)
            return
        self._find(exchange, Arguments(task=words), refusal)

    def _is_server(self, profile: Profile, name: str) -> bool:
        """Whether a name is that of a server of this profile, and of no tool."""
        reach, catalog = self._policy.reach(profile), self._catalog
        is_one = any(
            name in (each, catalog.namespaces.prefix(each)) and reach.admits(each) for each in catalog.upstreams()
        )
        return is_one and catalog.find(name) is None and not tools_named(name, catalog, reach)

    def join_conversation(self, exchange: Exchange, handle: str) -> None:
        """Continue the conversation of a handle. When a handle comes back for the first time, record that the discovery
        which gave it out belongs to that conversation."""
        chat = exchange.chat = exchange.own_session.conversations.of(handle)
        if chat.opened_by:
            self._recorder.name_discovery(chat.opened_by, chat.handle)
            chat.opened_by = 0

    def _find(self, exchange: Exchange, arguments: Arguments, refusal: str = "", before: Sequence[str] = ()) -> None:
        """Search, and answer. `refusal`: why the call of a name that led to the search did not run; `before`: what the
        answer begins with."""
        self._catalog.fix_names()
        chat = exchange.chat or exchange.own_session.conversations.whole
        started = time.perf_counter()
        if not refusal:
            chat.note_task(arguments.lines, self._recorder.now())
        profile = exchange.client.profile
        arguments = discovery_arguments.read_servers(arguments, partial(self._is_server, profile))
        query = discovery_arguments.query(arguments, chat.steps, chat.servers_in_use(), profile.name)
        reach = self._policy.reach(profile)
        # Some of these are dropped: what this profile may not find, and what one server says too often.
        limit = max(RANKED, arguments.wanted)
        answer = partial(self._answer, exchange, arguments, query, chat, started, refusal, before)

        def ranked(ranking: Ranking) -> None:
            self._skills.prepare(exchange, partial(answer, ranking))

        def judge(ranking: Ranking) -> None:
            go = ranked if arguments.lines and not refusal else answer
            self._judge.consult(query, reach.finds, ranking, go, exchange.attempt)

        self._search.find(query, reach.finds, limit, judge, exchange.attempt)

    def _answer(
        self, exchange: Exchange, arguments: Arguments, query: Query, chat: Conversation, started: float,
        refusal: str, before: Sequence[str], ranking: Ranking,
    ) -> None:  # fmt: skip
        if refusal and not ranking.ranked:
            exchange.tool_error(refusal)  # the name is one miss already
            return
        session, client = exchange.own_session, exchange.client
        skills = self._skills.find(query.lines, client, client.profile) if not refusal else []
        kept, answer = self.answer_search(
            client, session, chat, arguments, query, ranking, started, skills, is_ours=bool(refusal),
            has_read=bool(before),
        )  # fmt: skip
        answer = discovery_answer.with_handle(answer, session.conversations.handle_for(chat, kept.id))
        grows = client.tools.grow_for_discovery(session.list, kept)
        texts = [*([refusal] if refusal else []), *before, answer.text, *self._endings(exchange, chat, answer)]
        # Some clients show a model both forms, others the structured one alone (`docs/clients.md`).
        result = translate.text_result(*texts, is_error=bool(refusal))
        if arguments.structured:
            result["structuredContent"] = answer.structured
        if grows:
            paged = [each.tool for each in answer.matches if client.tools.shows_page(session.list, each.tool)]
            unseen = [tool for tool in paged if not session.list.sees(tool)]
            client.tools.hold(
                lambda: exchange.own_result(_with_pages(result, [tool for tool in unseen if session.list.sees(tool)]))
            )
        else:
            exchange.own_result(result)
        self._tokens.add(session, chat, kept.id, texts)

    def answer_search(
        self, client: ListOwner, session: Session, chat: Conversation, arguments: Arguments, query: Query,
        ranking: Ranking, started: float, skills: Sequence[SkillOffer] = (), is_ours: bool = False,
        has_read: bool = False,
    ) -> tuple[Discovery, Answer]:  # fmt: skip
        """Write the answer of one search, record it and what it missed; return the record, with its id, and the
        answer. `started`: when the search began, by `time.perf_counter`; `skills`: those that fit; `is_ours`:
        nobody wrote the words of the task, which are those of a wrong name; `has_read`: the answer begins with skills
        that were asked for by name."""
        reach = self._policy.reach(client.profile)
        # Code has no bridges: it calls every tool by its own name.
        by_name = (lambda _: True) if client.is_program else session.list.sees
        answer, predicted = self._answers.write(
            arguments, query, ranking, by_name, reach, session.told_absent, skills, client.told_servers,
            is_ours=is_ours,
        )  # fmt: skip
        kept = Discovery(
            session=session.record.key,
            at=self._recorder.now(),
            task="" if is_ours else self._recorder.keep_text(arguments.task),
            names=(arguments.task,) if is_ours else arguments.names,
            sufficiency=arguments.sufficiency,
            level=answer.level,
            matches=answer.matches,
            tokens=answer.tokens,
            took_ms=(time.perf_counter() - started) * 1000,
            handle=chat.handle,
            probability=predicted.shown,
            first_probability=predicted.first,
        )
        kept = replace(kept, id=self._recorder.discovery(kept))
        of = sum(self._catalog.now.count_tools(reach).values())
        left_out = not ranking.ranked and ranking.total > 0
        settled = session.discovered(
            kept, kept.id, of, chat, answer.unlisted, [each.tool for each in ranking.ranked],
            ranking.total, left_out, answer.callable, answer.nearest, by_words=answer.by_words,
            is_ours=is_ours, skills=[each.uri for each in skills], absent=answer.absent,
            lookup=self._look_up(arguments, answer, reach, has_read=has_read),
        )  # fmt: skip
        self._recorder.settle(settled.new, settled.changed)
        self._upstreams.start_wanted(answer.down)
        return kept, answer

    def _look_up(self, arguments: Arguments, answer: Answer, reach: Reach, *, has_read: bool) -> Lookup | None:
        """Return what came of a search by names alone, None for one with a task."""
        if arguments.lines or not arguments.names:
            return None
        if has_read or any(each.parts.get("name") == 1.0 for each in answer.matches):
            return Lookup(is_found=True)
        for name in arguments.names:
            if (tool := self._catalog.find(name)) is not None:
                add = f"add {tool.upstream!r} to the servers of the profile"
                change = reach.verdict(tool).lift if reach.admits(tool.upstream) else add
                return Lookup(is_found=False, cause="denied", change=change or add)
            if held := self._answers.find_held(name, reach):
                return Lookup(is_found=False, cause="denied", change=review_command(held))
            gone = self._catalog.meanings.why_gone(name)
            if gone is not None and reach.admits(gone.upstream):
                return Lookup(is_found=False, cause=gone.cause, change=gone.change)
        return Lookup(is_found=False)

    def _endings(self, exchange: Exchange, chat: Conversation, answer: Answer) -> list[str]:
        """Return what stands behind an answer, each text a block of its own: how its first tools were called before,
        and what is likely to come next."""
        session = exchange.own_session
        shown = [tool for each in answer.matches[:READY] if (tool := self._catalog.get(each.tool)) is not None]
        earlier = self._exemplars.write(shown)
        hint = self._predictor.hint(exchange.client, session, chat, self._predictor.predict(chat))
        if hint is not None:
            self._predictor.note_shown(session, chat, hint, in_answer=True)
        return [text for text in (earlier, hint.text if hint else "") if text]


def _with_pages(result: dict[str, Any], tools: Sequence[str]) -> dict[str, Any]:
    """Return an answer that says which of its tools the list has gained with a page: a bridged call would not show
    it."""
    if not tools:
        return result
    text = f"Your list has {', '.join(tools)} by now: call by that name, so that the page is shown."
    return {**result, "content": [*result["content"], {"type": "text", "text": text}]}

"""Which tools a model is asked about, what that costs, and asking.

Every answer is kept at once under the hash of the text that was sent. So a run that was ended goes on where it was, and
a tool is asked about again only when its text, the model or the question has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from foretool.learning.enrichment.answer import (
    MOST_ANSWER,
    VERSION,
    AnswerError,
    OtherNames,
    parse_wordings,
    write_messages,
)
from foretool.learning.enrichment.wish_models import EndpointError, RefusedError
from foretool.retrieval.corpus import digest
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.tokens import estimate
from foretool.server.config.settings import EnrichEntry
from foretool.server.trust.text import clean
from foretool.storage.records import Tool, Wording
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.learning.enrichment.wish_models import ModelReply
    from foretool.server.catalog.catalog import Catalog

_AT_ONCE: Final = 4
"""Questions that wait for an answer at the same time."""
_IN_A_ROW: Final = 8
"""So many questions without an answer one after the other end a run."""
_WRITTEN: Final = 80
"""Tokens that an answer has, about."""
GUESSED_S: Final = 2.0
"""What an answer takes where nobody has asked this model yet: a guess."""


class LanguageModel(Protocol):
    """What is asked: an endpoint, or a model of this machine."""

    async def ask(self, text: str) -> ModelReply:
        """Ask about one tool, given as the text that is sent. Raises `EndpointError`."""
        ...

    async def close(self) -> None:
        """Free the memory and the connections of the model."""
        ...


class ToolQuestion(Struct, frozen=True):
    """One tool that the language model is to be asked about."""

    tool: Tool
    digest: bytes
    text: str
    """What is sent, without secrets and invisible characters."""


class EnrichmentPlan(Struct, frozen=True):
    """What a run will ask, and what that costs."""

    questions: tuple[ToolQuestion, ...]
    known: int
    """Tools whose answers are kept already."""
    tokens_in: int
    tokens_out: int
    seconds: float
    is_guess: bool
    """Whether nobody has asked this model before, so that the time is a guess."""


class EnrichmentResult(Struct, frozen=True):
    asked: int
    kept: int
    """Answers that hold wordings."""
    empty: int
    """Answers of which nothing could be used."""
    failed: int
    """Questions without an answer; they are asked again next time."""
    tokens: int
    problem: str = ""
    """Why the run has ended early, or the last failure, in one line."""


def make_plan(
    entry: EnrichEntry, catalog: Catalog, store: Store, redact: Callable[[str], str], tools: Iterable[Tool]
) -> EnrichmentPlan:
    kept = {each.digest: each for each in store.wordings.all()}
    questions, known = dict[bytes, ToolQuestion](), 0
    for tool in tools:
        text = embedded_text(document(tool, catalog.texts.about(tool.upstream)))
        key = digest(text)
        if (have := kept.get(key)) is not None and (have.model, have.version) == (entry.name, VERSION):
            known += 1
        else:
            questions.setdefault(key, ToolQuestion(tool, key, clean(redact(text))))
    asked = tuple(questions.values())
    read = sum(estimate("".join(each["content"] for each in write_messages(question.text))) for question in asked)
    written = _WRITTEN * len(asked)
    times = [each.took_s for each in kept.values() if each.model == entry.name]
    each_s = median(times) if times else GUESSED_S
    return EnrichmentPlan(asked, known, read, written, len(asked) * each_s / _at_once(entry), not times)


async def ask_about_tools(
    plan: EnrichmentPlan,
    entry: EnrichEntry,
    model: LanguageModel,
    catalog: Catalog,
    store: Store,
    say: Callable[[ToolQuestion], None] = lambda question: None,
) -> EnrichmentResult:
    """Ask about every tool of a plan; each answer is kept as it comes. `say` is told of each question that is done."""
    asking = _Asking(entry, model, store, taken_names(catalog.tools(), catalog.upstreams()), say)
    waiting = iter(plan.questions)

    async def ask_next() -> None:
        for question in waiting:
            if asking.is_over:
                return
            await asking.ask(question)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_at_once(entry)):
            tasks.create_task(ask_next())
    return EnrichmentResult(asking.asked, asking.kept, asking.empty, asking.failed, asking.tokens, asking.problem)


def _at_once(entry: EnrichEntry) -> int:
    """Return how many questions wait for an answer at once; a model of this machine has one after the other."""
    return _AT_ONCE if entry.url else 1


def taken_names(tools: Sequence[Tool], servers: Collection[str]) -> OtherNames:
    """Return the names of all tools and servers, which no wording may contain."""
    return OtherNames((name for tool in tools for name in (str(tool.id), tool.name)), servers)


class _Asking:
    def __init__(
        self,
        entry: EnrichEntry,
        model: LanguageModel,
        store: Store,
        names: OtherNames,
        say: Callable[[ToolQuestion], None],
    ) -> None:
        self._entry, self._model, self._store, self._names, self._say = entry, model, store, names, say
        self.asked = self.kept = self.empty = self.failed = self.tokens = 0
        self.problem = ""
        self.is_over = False
        self._failed_in_a_row = 0

    async def ask(self, question: ToolQuestion) -> None:
        self.asked += 1
        started = time.monotonic()
        try:
            reply = await self._model.ask(question.text)
            texts = parse_wordings(reply.content, question.text, self._names)
        except (EndpointError, AnswerError) as error:
            self._fail(question, error)
            return
        self._failed_in_a_row = 0
        tokens = reply.tokens or estimate(question.text) + MOST_ANSWER
        self.tokens += tokens
        self.kept += bool(texts)
        self.empty += not texts
        took_s = time.monotonic() - started
        self._store.wordings.save(
            Wording(
                question.digest, self._entry.name, VERSION, question.tool.upstream, str(question.tool.id), texts,
                tokens, took_s, time.time(),
            )
        )  # fmt: skip
        self._say(question)

    def _fail(self, question: ToolQuestion, error: Exception) -> None:
        self.failed += 1
        self._failed_in_a_row += 1
        self.problem = f"{question.tool.id}: {error}"
        if isinstance(error, RefusedError) or self._failed_in_a_row >= _IN_A_ROW:
            self.is_over = True
        self._say(question)

"""Eq. 3 by hand, and Algorithm 1: one pass, two passes, what is remembered and what is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from requirements import requirement

from bench.papers.published.itr import (
    Corpora,
    Item,
    Itr,
    Parameters,
    Reply,
    Scorer,
    Telemetry,
    hybrid,
    per_token,
    retrieve,
    task_signature,
    unit,
)
from foretool.retrieval.fragments import Fragment
from foretool.retrieval.itr import Candidate, Selected, select

pytestmark = pytest.mark.anyio

TOOLS = tuple(Item(name, f"{name}: does {name}", 100) for name in ("add", "sum", "mail", "pay"))
TEXTS = (
    Fragment("s", "file s.md", "Never pay twice.", "safety", "", 5),
    Fragment("style", "file style.md", "Answer in French.", "guidance", "", 50),
)


class Words:
    """BM25 of a kind: shared words; no cosine."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.asked = 0

    def cosines(self, query: str) -> list[float]:
        self.asked += 1
        return [0.0] * len(self.texts)

    def words(self, query: str) -> list[float]:
        return [float(len(set(query.lower().split()) & set(text.lower().split()))) for text in self.texts]

    def cross(self, query: str, places: Sequence[int]) -> None:
        return None


class Table:
    """A scorer whose signals are given."""

    def __init__(self, cosines: list[float], words: list[float], cross: dict[int, float] | None = None) -> None:
        self._cosines, self._words, self._cross = cosines, words, cross
        self.judged: list[int] = []

    def cosines(self, query: str) -> list[float]:
        return self._cosines

    def words(self, query: str) -> list[float]:
        return self._words

    def cross(self, query: str, places: Sequence[int]) -> list[float] | None:
        self.judged = list(places)
        return None if self._cross is None else [self._cross[place] for place in places]


@requirement("itr:selection")
def test_equation_4_by_gain_per_token() -> None:
    # a .9/300 = .003, b .5/100 = .005, i .6/150 = .004, c .2/200 = .001. So b, i, a: 100 + 150 + 300 = 550.
    given = per_token(
        [
            Candidate("a", "tool", 300, 0.9), Candidate("b", "tool", 100, 0.5),
            Candidate("i", "instruction", 150, 0.6), Candidate("c", "tool", 200, 0.2),
        ]
    )  # fmt: skip
    assert select(given, 550, {}) == Selected(("i",), ("b", "a"), 550)
    # With 400 tokens a does not fit after b and i, and c (100 + 150 + 200 = 450) does not either.
    assert select(given, 400, {}) == Selected(("i",), ("b",), 250)


def test_a_signature_is_the_words_whatever_their_order_and_endings() -> None:
    assert task_signature("Creating the issues") == task_signature("issue: create") == ("creat", "issu")


@requirement("itr:scores")
def test_equation_3_by_hand() -> None:
    weights = Parameters(dense=0.5, sparse=0.3, cross=0.2)
    # .5 * .8 + .3 * .5 + .2 * 1 = .75;  .5 * .2 + .3 * 1 + .2 * .5 = .5
    assert hybrid([0.8, 0.2], [0.5, 1.0], [1.0, 0.5], weights) == pytest.approx([0.75, 0.5])
    # Without a cross-encoder: .4 + .15 and .1 + .3.
    assert hybrid([0.8, 0.2], [0.5, 1.0], None, weights) == pytest.approx([0.55, 0.4])


def test_bm25_is_scaled_by_its_best_and_an_empty_list_stays_zero() -> None:
    assert unit([4.0, 2.0, 0.0]) == [1.0, 0.5, 0.0]
    assert unit([0.0, 0.0]) == [0.0, 0.0]
    assert unit([]) == []


@requirement("itr:scores")
def test_the_best_m_by_cosine_and_bm25_are_reranked_with_the_cross_encoder() -> None:
    # First pass, weights .4 and .3, BM25 over its best (10): .36 + .3 = .66, .32 + .15 = .47, .04 + 0 = .04,
    # .28 + .24 = .52. The best three are 0, 3, 1; with .3 of the cross-encoder .66 + 0, .52 + .27, .47 + .3 = .77.
    scorer = Table([0.9, 0.8, 0.1, 0.7], [10.0, 5.0, 0.0, 8.0], {0: 0.0, 1: 1.0, 3: 0.9})
    found = retrieve("q", scorer, 3)
    assert [place for place, _ in found] == [3, 1, 0]
    assert [score for _, score in found] == pytest.approx([0.79, 0.77, 0.66])
    assert scorer.judged == [0, 3, 1]


class Model:
    """Rates what it sees as told, pass by pass, and keeps what it saw."""

    def __init__(self, *ratings: float) -> None:
        self.ratings = list(ratings)
        self.seen: list[tuple[str, list[str]]] = []

    async def __call__(self, prompt: str, tools: Sequence[Item]) -> Reply[str]:
        self.seen.append((prompt, [tool.id for tool in tools]))
        return Reply(f"pass {len(self.seen)}", self.ratings.pop(0))


def corpora(version: int = 0, tools: Scorer | None = None) -> Corpora:
    scorer = tools or Words(["add numbers", "add sum", "send mail add", "add pay"])
    return Corpora(TEXTS, Words([text.text for text in TEXTS]), TOOLS, scorer, version)


@requirement("itr:loop")
async def test_tools_that_suffice_are_asked_with_once() -> None:
    told: list[Telemetry] = []
    model = Model(0.9)
    loop = Itr(corpora(), Parameters(tools=1), report=told.append)
    assert await loop.answer("answer in numbers: add numbers", model) == "pass 1"
    prompt, tools = model.seen[0]
    assert tools == ["add"]
    assert prompt.startswith("Never pay twice.\n\n") and "Answer in French." in prompt
    assert told == [Telemetry(("style",), ("add",), 150, (0.9,), "none", False, "")]


@requirement("itr:loop")
async def test_a_rating_below_tau_widens_once_and_asks_again() -> None:
    told: list[Telemetry] = []
    model = Model(0.69, 0.1)
    loop = Itr(corpora(), Parameters(tools=1), report=told.append)
    assert await loop.answer("add numbers", model) == "pass 2"
    assert [tools for _, tools in model.seen] == [["add"], ["add", "sum"]]
    assert (told[0].sufficiency, told[0].fallback) == ((0.69, 0.1), "expand")


@requirement("itr:sufficiency")
async def test_where_nothing_is_left_to_add_the_names_of_all_tools_are_shown() -> None:
    model = Model(0.2, 0.2)
    await Itr(corpora(), Parameters(tools=4)).answer("numbers", model)
    assert [tools for _, tools in model.seen] == [["add"], ["add"]]
    assert model.seen[1][0].endswith("Other tools: sum, mail, pay.")


@requirement("itr:cache")
async def test_a_task_of_the_same_words_is_not_retrieved_again_until_the_content_changes() -> None:
    told: list[Telemetry] = []
    scorer = Words(["add numbers", "add sum", "send mail", "pay"])
    loop = Itr(corpora(1, scorer), report=told.append)
    await loop.answer("add the numbers", Model(1.0))
    await loop.answer("numbers: added", Model(1.0))
    assert (scorer.asked, [each.cached for each in told]) == (1, [False, True])
    loop.corpora = corpora(2, scorer)
    await loop.answer("add the numbers", Model(1.0))
    assert (scorer.asked, told[-1].cached) == (2, False)


@requirement("itr:pins")
async def test_a_pinned_tool_is_exposed_where_its_domain_is_met() -> None:
    model = Model(1.0, 1.0)
    loop = Itr(corpora(), Parameters(tools=1), pins=lambda query: ("pay",) if "invoice" in query else ())
    await loop.answer("numbers", model)
    await loop.answer("numbers of an invoice", model)
    assert [tools for _, tools in model.seen] == [["add"], ["pay", "add"]]


@requirement("itr:telemetry")
async def test_what_the_model_raises_is_told_and_goes_on() -> None:
    told: list[Telemetry] = []

    async def broken(prompt: str, tools: Sequence[Item]) -> Reply[str]:
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError, match="no answer"):
        await Itr(corpora(), report=told.append).answer("add numbers", broken)
    assert (told[0].sufficiency, told[0].error) == ((), "TimeoutError")


async def test_the_budget_pays_for_overlay_and_note_first() -> None:
    model = Model(1.0)
    await Itr(corpora(), Parameters(budget=150)).answer("add numbers", model)
    assert model.seen[0][1] == []

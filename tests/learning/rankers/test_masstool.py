"""What past tasks add to a score: by hand, over a model of two tools and three grams."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log1p
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from requirements import requirement

from foretool.learning.rankers.masstool import (
    FAINT,
    LEAST_PRIOR,
    LEAST_TRUST,
    PEAK,
    SHARPNESS,
    Familiarity,
    Header,
    MassTool,
    Net,
    Sparse,
    Trust,
    Tuned,
    dumps,
    grams,
    height,
    share_rows,
    votes,
    weighted,
)
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.model_format import Floats, ModelError, pack
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

GRAMS = sorted((crc32(word.encode()), word) for word in ("mail", "read", "send"))
PLACES = {word: place for place, (_, word) in enumerate(GRAMS)}
ALWAYS = Trust(bias=30.0, meaning=0.0, words=0.0, sureness=0.0, agreement=0.0, near=0.0, far=-1.0, reads_vectors=False)
NEAR = replace(ALWAYS, bias=-4.0, words=8.0, near=0.6, far=0.2)
ALONE = Header(
    tools=("post__read", "post__send"),
    read=ALWAYS,
    unread=ALWAYS,
    nets=1,
    mix=1.0,
    even=1.0,
    tasks=2,
    familiar=1.0,
    detects=False,
)


def arrays(**other: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Two classes, the sets {read} and {read, send}; "send" speaks for the second. Two tasks on record, one of each."""
    rows = np.zeros((3, 1), np.int8)
    rows[PLACES["send"]] = 1
    return {
        "hashes": np.asarray([gram for gram, _ in GRAMS], np.uint32),
        "idf": np.ones(3, np.float16),
        "rows0": rows,
        "scales0": np.ones(3, np.float32),
        "out0": np.asarray([[0.0, 2.0]], np.float16),
        "bias0": np.zeros(2, np.float32),
        "class_starts": np.asarray([0, 1, 3]),
        "class_tools": np.asarray([0, 0, 1]),
        "bank": np.zeros((2, 0), np.int8),
        "word_starts": np.asarray([0, 1, 2]),
        "word_columns": np.asarray([PLACES["read"], PLACES["send"]], np.uint16),
        "word_values": np.ones(2, np.float16),
        "golds_starts": np.asarray([0, 1, 2]),
        "golds_tools": np.asarray([0, 1]),
        "detect": np.zeros(4, np.float16),
        **other,
    }


def model(header: Header = ALONE, **other: NDArray[Any]) -> MassTool:
    found = MassTool.loads(dumps(header, arrays(**other)))
    found.align([ToolId("post__send"), ToolId("new__tool"), ToolId("post__read")], None)
    return found


def test_a_text_is_its_words_and_their_neighbours() -> None:
    assert grams("Send mail, send_it") == {
        crc32(gram.encode()): count
        for gram, count in {"send": 2, "mail": 1, "it": 1, "send mail": 1, "mail send": 1, "send it": 1}.items()
    }
    assert grams("") == {}
    assert crc32("信".encode()) in grams("发信给我"), "written without spaces, each character is a word"


def test_words_that_no_task_had_make_a_text_unlike_all() -> None:
    hashes = np.asarray(sorted((crc32(b"mail"), crc32(b"send"))), np.uint32)
    idf = np.ones(2, np.float32)
    places, values = weighted({crc32(b"mail"): 1}, hashes, idf)
    assert (places.tolist(), values.tolist()) == ([hashes.tolist().index(crc32(b"mail"))], [1.0])
    places, values = weighted({crc32(b"mail"): 1, crc32(b"whale"): 1, crc32(b"song"): 1, crc32(b"sea"): 1}, hashes, idf)
    assert values.tolist() == [0.5]
    assert weighted({1: 1}, np.empty(0, np.uint32), np.empty(0, np.float32))[0].tolist() == []


def test_repeated_words_count_by_their_logarithm() -> None:
    hashes = np.asarray([3, 9], np.uint32)
    places, values = weighted({9: 1, 3: 2}, hashes, np.asarray([2.0, 1.0], np.float32))
    raw = np.asarray([1.0, (1 + np.log(2)) * 2.0])
    assert places.tolist() == [1, 0]
    assert values == pytest.approx(raw / np.linalg.norm(raw))


def test_what_a_set_has_is_shared_by_its_tools() -> None:
    starts, tools = np.asarray([0, 1, 3]), np.asarray([0, 0, 1])
    rows = np.asarray([0.4, 0.6], np.float32)
    assert share_rows(starts, tools, even=1.0).spread(rows, 3) == pytest.approx([0.4 + 0.3, 0.3, 0.0])
    assert share_rows(starts, tools, even=0.0).spread(rows, 3) == pytest.approx([1.0, 0.6, 0.0])


def test_the_nearest_tasks_vote_by_how_alike_they_are() -> None:
    likeness = np.asarray([0.5, 0.4, -1.0], np.float32)
    first, second = 1.0, exp(-SHARPNESS * 0.1)
    assert votes(likeness)[:2] == pytest.approx([first / (first + second), second / (first + second)], rel=1e-5)
    many = votes(np.linspace(0.0, 1.0, 100, dtype=np.float32))
    assert (many > 0).sum() == 20
    assert votes(np.empty(0, np.float32)).tolist() == []


def test_rows_of_few_values_multiply_like_whole_ones() -> None:
    rows = Sparse(np.asarray([0, 2, 2, 3]), np.asarray([0, 2, 1]), np.asarray([1.0, 3.0, 5.0], np.float32))
    assert rows.times(np.asarray([1.0, 10.0, 100.0], np.float32)).tolist() == [301.0, 0.0, 50.0]
    assert [each.tolist() for each in rows.row(0)] == [[0, 2], [1.0, 3.0]]


def test_a_head_reads_words_and_vector() -> None:
    net = Net(
        rows=np.asarray([[2], [4]], np.int8),
        scales=np.asarray([0.5, 0.25], np.float32),
        out=np.asarray([[1.0, 0.0], [0.0, 1.0]], np.float32),
        bias=np.asarray([0.0, 0.5], np.float32),
    )
    # The words' one number is 3 * 1 + 1 * 1, the vector's is 2: logits 4 and 2.5.
    found = net.logits(np.asarray([0, 1]), np.asarray([3.0, 1.0], np.float32), np.asarray([2.0], np.float32))
    assert found.tolist() == [4.0, 2.5]


def test_heads_that_read_vectors_answer_together_and_the_others_where_there_is_none() -> None:
    bank = np.asarray([[127], [127]], np.int8)
    other = {
        f"{name}{number}": values
        for name, values in {"rows": arrays()["rows0"], "scales": np.ones(3), "bias": np.zeros(2)}.items()
        for number in (1, 2)
    }
    told = model(
        replace(ALONE, nets=3),
        bank=bank,
        detect=np.zeros(5, np.float16),
        out1=np.asarray([[0.0, 1.0], [0.0, 3.0]], np.float16),
        out2=np.asarray([[0.0, 2.0], [0.0, 0.0]], np.float16),
        **other,
    )
    # Of the sets {read} and {read, send}: logits 0 and (1 + 3 + 2 + 0) / 2 with the vector, 0 and 2 by the word alone.
    for vector, logit in ((np.ones(1, np.float32), 3.0), (None, 2.0)):
        second = 1 / (1 + exp(-logit))
        found = told.past(told.read("send", vector))
        assert found.shares.tolist() == pytest.approx([1 - second / 2, second / 2], abs=1e-3)
        assert found.signs.sureness == pytest.approx(second, abs=1e-3)


@requirement("masstool:tuned")
def test_a_fine_tuned_encoder_counts_as_much_as_the_heads_together() -> None:
    class Certain:
        name = "certain"

        def documents(self, texts: Sequence[str]) -> Floats:
            raise AssertionError("tools keep their vectors")

        def queries(self, texts: Sequence[str]) -> Floats:
            asked.extend(texts)
            return np.asarray([[2.0]] * len(texts), np.float32)

    asked: list[str] = []
    plain = model(bank=np.asarray([[127], [127]], np.int8), detect=np.zeros(5, np.float16))
    vector = np.ones(1, np.float32)
    before = plain.past(plain.read("send", vector)).signs.sureness
    plain.tuned = Tuned(Certain(), np.asarray([[0.0, 3.0]], np.float32), np.zeros(2, np.float32))
    # The head's logits are 0 and 2, the tuned encoder's 0 and 6.
    assert before == pytest.approx(1 / (1 + exp(-2.0)), abs=1e-3)
    assert plain.past(plain.read("send", vector)).signs.sureness == pytest.approx(1 / (1 + exp(-4.0)), abs=1e-3)
    assert plain.past(plain.read("send", None)).signs.sureness == before, "words alone are answered by words alone"
    assert asked == ["send"]


def test_a_model_whose_fine_tuned_encoder_is_not_installed_serves_without_it() -> None:
    told = np.frombuffer(Adapter("ffff", {}).dumps(), np.uint8)
    assert model(tuned_adapter=told, tuned_out=np.ones((1, 2)), tuned_bias=np.zeros(2)).tuned is None
    assert model(tuned_adapter=np.zeros(3, np.uint8)).tuned is None
    assert model().tuned is None


@requirement("masstool:trust")
def test_trust_is_nothing_far_from_known_tasks_and_grows_towards_them() -> None:
    def after(chance: float) -> float:
        """Less what counts as nothing."""
        return pytest.approx((chance - LEAST_TRUST) / (1 - LEAST_TRUST))  # type: ignore[no-any-return]

    found = [
        NEAR(Familiarity(meaning=0.0, words=words, sureness=1.0, agreement=1.0)) for words in (0.1, 0.2, 0.4, 0.5, 0.9)
    ]
    assert found == [0.0, 0.0, after(0.5 / (1 + exp(0.8))), after(0.75 / 2), after(1 / (1 + exp(-3.2)))]
    seeing = replace(NEAR, reads_vectors=True)
    assert seeing(Familiarity(meaning=0.2, words=1.0, sureness=1.0, agreement=1.0)) == 0.0
    likely = NEAR(Familiarity(meaning=0.0, words=0.9, sureness=1.0, agreement=1.0), prior=0.9)
    assert likely == after(1 / (1 + exp(-3.2) / 9)), "odds of the prior times odds of the signs"


@requirement("masstool:trust")
def test_a_log_whose_tools_are_elsewhere_is_hardly_believed() -> None:
    found = model()
    assert found.prior == 1 - LEAST_PRIOR
    found.align([ToolId("post__read"), ToolId("other")], None)
    assert found.prior == 0.5, "one of the two tasks on record had its tools here"
    found.align([ToolId("other")], None)
    assert found.prior == LEAST_PRIOR
    unlike = model(replace(ALONE, familiar=0.3))
    assert unlike.prior == pytest.approx(0.3), "tasks of this log often took what none before them took"


@requirement("masstool:score")
def test_a_task_like_an_earlier_one_lifts_the_tools_that_one_took() -> None:
    second = 1 / (1 + exp(-2.0))  # "send" alone: logits 0 and 2
    shares = {"read": (1 - second) + second / 2, "send": second / 2}
    expected = [PEAK * log1p(shares[name] / FAINT) / log1p(1 / FAINT) if name else 0.0 for name in ("send", "", "read")]
    assert model().score(Query(("send",)), None) == pytest.approx(expected, rel=1e-3)
    assert height(np.asarray([0.0, 1.0], np.float32)).tolist() == [0.0, 1.0]


@requirement("masstool:score")
def test_the_vote_alone_carries_a_log_too_thin_for_a_head() -> None:
    thin = model(replace(ALONE, nets=0, mix=0.0))
    send, new, read = thin.score(Query(("send",)), None)
    assert send > PEAK * 0.99
    assert (new, read) == (0.0, pytest.approx(0.0, abs=1e-3))


@requirement("masstool:trust")
def test_a_task_of_another_kind_gets_nothing() -> None:
    far = model(replace(ALONE, unread=NEAR))
    assert far.score(Query(("whales sing in the deep sea",)), None).tolist() == [0.0, 0.0, 0.0]
    assert far.believed(far.past(far.read("whales", None))) == 0.0
    assert far.believed(far.past(far.read("send", None))) > 0.9


def test_without_words_there_is_nothing_to_say() -> None:
    assert model().score(Query(history=(ToolId("post__read"),)), None).tolist() == [0.0, 0.0, 0.0]
    assert model().score(Query(("  ",)), None).tolist() == [0.0, 0.0, 0.0]


@requirement("masstool:tools")
def test_tools_that_are_gone_take_their_share_with_them() -> None:
    whole, part = model(), model()
    part.align([ToolId("post__send")], None)
    both, one = whole.score(Query(("send",)), None), part.score(Query(("send",)), None)
    share = (1 / (1 + exp(-2.0))) / 2
    assert one.tolist() == [pytest.approx(both[0] * share, rel=1e-3)]
    part.align([None, ToolId("other")], None)
    assert part.score(Query(("send",)), None).tolist() == [0.0, 0.0]


def test_a_vector_of_another_encoder_is_left_out() -> None:
    bank = np.asarray([[127, 0], [0, 127]], np.int8)
    seeing = model(replace(ALONE, unread=NEAR), bank=bank, detect=np.zeros(6, np.float16))
    vector = np.asarray([1.0, 0.0], np.float32)
    assert seeing.past(seeing.read("send", vector)).signs.meaning == 1.0
    assert seeing.read("send", 3 * vector).vector.tolist() == [1.0, 0.0]
    assert not seeing.read("send", np.ones(3, np.float32)).has_vector
    assert not seeing.read("send", np.zeros(2, np.float32)).has_vector, "an encoder that has not answered yet"


@requirement("masstool:detection")
def test_detection_reads_words_and_vector() -> None:
    weights = np.zeros(2 + 3 + 1, np.float16)
    weights[0], weights[2 + PLACES["send"]], weights[-1] = 0.5, 2.0, -0.5
    told = model(replace(ALONE, detects=True), bank=np.zeros((2, 2), np.int8), detect=weights)
    assert told.needs_tool(np.asarray([1.0, 0.0], np.float32), "send") == pytest.approx(1 / (1 + exp(-2.0)))
    assert told.needs_tool(None, "") == pytest.approx(1 / (1 + exp(0.5)))
    assert model().needs_tool(None, "send") is None, "nobody said which tasks need none"


def test_a_model_without_its_parts_is_refused() -> None:
    with pytest.raises(ModelError, match="a model without all its parts"):
        MassTool.loads(dumps(ALONE, {name: each for name, each in arrays().items() if name != "bank"}))
    with pytest.raises(ModelError, match="a model without all its parts"):
        MassTool.loads(pack("masstool", 1, {}, arrays()))
    with pytest.raises(ModelError, match="not a model"):
        MassTool.loads(b"")

"""What comes next, part by part, each by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from requirements import requirement

from bench.growth.prediction import make_model
from foretool.learning.linear_maps import Lsa, NextText, no_next_text
from foretool.learning.rankers import dtdr
from foretool.learning.rankers.dtdr import CallGraph, Dtdr
from foretool.learning.rankers.dtdr_model import (
    AT,
    PARTS,
    UNKNOWN,
    VERSION,
    Model,
    Network,
    PastCalls,
    read_model,
    rows_of,
)
from foretool.retrieval.model_format import Floats, ModelError, pack, unpack
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

A, B, C = ToolId("s__alpha"), ToolId("s__beta"), ToolId("s__gamma")
NEW, LATER = ToolId("s__new_mail"), ToolId("s__later")
END = 2


def weights(**named: float) -> tuple[float, ...]:
    return tuple(named.get(name, 0.0) for name in PARTS)


def model(**changes: object) -> Model:
    """Two tools; two past tasks: A then B, and B alone. The network says nothing unless it is changed."""
    hidden = 2
    base = Model(
        tools=(A, B),
        idle=(),
        network=Network(
            query=np.zeros((2, hidden), np.float32),
            history=np.zeros((rows_of(2), hidden), np.float32),
            bias=np.zeros(hidden, np.float32),
            unasked=np.zeros(hidden, np.float32),
            out=np.zeros((hidden, 3), np.float32),
            out_bias=np.zeros(3, np.float32),
        ),
        lsa=Lsa((), np.zeros((0, 0), np.float32)),
        dimension=2,
        next_text=no_next_text(2),
        lens=np.eye(2, dtype=np.float32),
        tasks=np.eye(2, dtype=np.float32),
        calls=PastCalls(
            np.asarray([[0, 1], [1, -1]], np.int32), np.asarray([2, 1], np.int32), np.asarray([True, True], np.bool_)
        ),
        asked=weights(network=1.0),
        unasked=weights(network=1.0),
    )
    return replace(base, **changes)


def served(given: Model, *tools: ToolId | None, vectors: Floats | None = None) -> Dtdr:
    found = Dtdr(given)
    found.align(tools or (A, B), vectors)
    return found


def listed(values: object) -> list[float]:
    return [round(float(each), 4) for each in np.asarray(values)]


def test_the_graph_backs_off_to_shorter_ends_of_the_history() -> None:
    # Walks: A B END, B END. Each class is called: A 1, B 2, END 2, and half a call more: 1.5, 2.5, 2.5 of 6.5.
    graph = CallGraph([[0, 1, END], [1, END]], 2)
    prior = np.asarray([1.5, 2.5, 2.5]) / 6.5
    assert listed(graph.prior) == listed(prior)
    # After the start: A once, B once; the prior counts for m = 2 calls.
    assert listed(graph.after([])) == listed((np.asarray([1, 1, 0]) + 2 * prior) / 4)
    # After A: B once; then after (start, A): B once more.
    once = (np.asarray([0, 1, 0]) + 2 * prior) / 3
    assert listed(graph.after([0])) == listed((np.asarray([0, 1, 0]) + 2 * once) / 3)
    # After B, B nothing is known but what follows B: END, twice.
    assert listed(graph.after([1, 1])) == listed((np.asarray([0, 0, 2]) + 2 * prior) / 4)
    # After a tool that nobody knows, how often each is called; before B, no more than B says.
    assert listed(graph.after([0, UNKNOWN])) == listed(prior)
    assert listed(graph.after([UNKNOWN, 1])) == listed((np.asarray([0, 0, 2]) + 2 * prior) / 4)


def test_the_network_is_one_layer_of_task_and_history_and_a_softmax() -> None:
    network = model().network._replace(
        query=np.asarray([[1, 0], [0, 1]], np.float32) / 8,
        out=np.log(np.asarray([[4, 1, 1], [1, 2, 1]], np.float32)),
    )
    network.history[rows_of(2) - dtdr.PLACES + 1] = [-5, 0]  # after one call
    found = served(model(network=network))
    # Task (1, 0): hidden (1, 0), logits log 4, 0, 0. With one call before the first unit is shut: all alike.
    chance, end = found.after((), np.asarray([1, 0], np.float32))
    trace = np.log(np.asarray([4, 1, 1]) / 6 + dtdr.TRACE)
    assert listed([*chance, end]) == listed(np.exp(trace) / np.exp(trace).sum())
    chance, end = found.after((A,), np.asarray([1, 0], np.float32))
    assert listed([*chance, end]) == [0.3333, 0.3333, 0.3333]


def test_neighbours_say_what_came_next_where_their_calls_were_like_ours() -> None:
    found = served(model(asked=weights(neighbours=1.0)))
    task = found.of_task(np.asarray([1, 0], np.float32), ())
    # Cosines 1 and 0: nearness exp(0), exp(-1 / NEARNESS). Nothing called yet: the first place of each matches in full.
    near, far = 1.0, np.exp(-1 / dtdr.NEARNESS)
    calls, last = dtdr.SAME_CALLS, dtdr.SAME_LAST
    full = np.exp(calls + last)
    # First task: A at place 0 (in full), B at place 1 and END at place 2 (no call in common). Second: B, then END.
    expected = np.asarray([near * full, near + far * full, near + far])
    assert listed(found.parts((), task)[1]) == listed(np.log(expected / expected.sum() + dtdr.TRACE))
    # After A: place 1 of the first matches in full; place 2 shares A of A and B; place 0 and the second share nothing.
    expected = np.asarray([near, near * full + far, near * np.exp(calls / 2) + far])
    assert listed(found.parts((A,), task)[1]) == listed(np.log(expected / expected.sum() + dtdr.TRACE))


def test_a_past_that_repeats_a_call_is_as_like_ours_as_one_that_does_not() -> None:
    # The past is A A B and ours is A: before B, the same set of calls and the same last one, so 3 * 1 + 2 * 1.
    calls = PastCalls(np.asarray([[0, 0, 1]], np.int32), np.asarray([3], np.int32), np.asarray([True], np.bool_))
    found = served(model(calls=calls, tasks=np.ones((1, 2), np.float32)))
    likeness = found._likeness([0], found._compare_with(np.asarray([0]), np.ones(1, np.float32)))
    assert listed(likeness[0]) == [0.0, 5.0, 5.0, 1.5]  # before A, before A, before B, and at the end: {A} of {A, B}


def test_the_listwise_layer_is_a_softmax_over_the_weighted_parts() -> None:
    given = model(unasked=weights(called=-1.0, end=0.5))
    chance, end = served(given).after((B,))
    odds = np.exp([0.0, -1.0, 0.5])
    assert listed([*chance, end]) == listed(odds / odds.sum())


@requirement("dtdr:unseen")
def test_a_tool_that_came_after_training_is_ranked_at_once_by_what_it_says() -> None:
    given = model(asked=weights(network=1.0, meaning=2.0, name=3.0, unseen=-1.0))
    vectors = np.asarray([[0, 1], [0, 1], [1, 0], [0, -1]], np.float32)
    found = served(given, A, B, NEW, C, vectors=vectors)
    chance, _ = found.after((), np.asarray([1, 0], np.float32), ("read new mail",))
    assert chance.argmax() == 2
    assert chance[3] < chance[0]
    assert all(each > 0 for each in chance)


def test_the_same_question_is_worked_out_once_and_any_other_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = served(model())
    made: list[tuple[ToolId, ...]] = []
    real = found._logits
    monkeypatch.setattr(found, "_logits", lambda history, task: made.append(tuple(history)) or real(history, task))
    vector = np.asarray([1, 0], np.float32)
    scores = found.score(Query(("read mail",), (), (A,)), vector)
    chance, end = found.after([A], vector.copy(), ["read mail"])
    assert made == [(A,)]
    assert listed(scores) == listed(np.log1p(chance * int(found.live.sum())))
    for which, lines in ((vector, ("read mail",)), (-vector, ("read mail",)), (-vector, ("send mail",)), (None, ())):
        found.after((B,), which, lines)
    assert len(made) == 5
    found.align((B, A), None)
    assert len(found.after((B,))[0]) == 2
    # The answer is shared, so nobody may write into it.
    with pytest.raises(ValueError):
        found.after((B,))[0][0] = 1.0
    assert float(chance.sum()) + end == pytest.approx(1.0)


def test_probabilities_and_the_end_add_up_to_one_and_dropped_tools_have_none() -> None:
    chance, end = served(model(), A, None, B).after((A,))
    assert chance[1] == 0.0
    assert float(chance.sum()) + end == pytest.approx(1.0)


def test_a_tool_of_the_model_that_is_gone_takes_nothing() -> None:
    chance, end = served(model(), B, C).after(())
    assert len(chance) == 2 and float(chance.sum()) + end == pytest.approx(1.0)


def test_after_a_call_of_a_tool_that_nobody_knows_the_task_is_not_where_it_began() -> None:
    found = served(model())
    task = found.of_task(None, ())
    begun, after = (found.parts(history, task) for history in ((), (ToolId("x__gone"),)))
    assert listed(after[AT["graph"]]) == listed(after[AT["prior"]])
    assert listed(begun[AT["graph"]]) != listed(after[AT["graph"]])
    assert (begun[AT["end_place"], -1], after[AT["end_place"], -1]) == (0, 1 / dtdr.PLACES)
    # Neighbours: no call in common with A or B, nor the same last one.
    task = found.of_task(np.asarray([1, 0], np.float32), ())
    near, far = 1.0, np.exp(-1 / dtdr.NEARNESS)
    expected = np.asarray([near, near + far, near + far])
    assert listed(found.parts((ToolId("x__gone"),), task)[AT["neighbours"]]) == listed(
        np.log(expected / expected.sum() + dtdr.TRACE)
    )


@requirement("dtdr:unseen")
def test_how_much_falls_to_new_tools_hangs_on_how_sure_the_network_is() -> None:
    network = model().network._replace(out_bias=np.log(np.asarray([8, 1, 1], np.float32)))
    given = model(network=network, idle=(C,), unasked=weights(unseen=1.0, unseen_sure=-2.0, arrived=3.0))
    found = served(given, A, C, NEW)
    # The surest is A with .8; C was there in training and never called, NEW came later.
    sure = -2 * np.log(0.8 + dtdr.TRACE)
    odds = np.exp([0, 1 + sure, 1 + sure + 3, 0])
    chance, end = found.after(())
    assert listed([*chance, end]) == listed(odds / odds.sum())


@requirement("dtdr:unseen")
def test_a_new_tool_has_at_least_the_place_that_nearness_to_the_task_gives_it() -> None:
    network = model().network._replace(out_bias=np.log(np.asarray([90, 9, 1], np.float32)))
    given = model(network=network, idle=(C,), asked=weights(network=1.0, unseen=-9.0))
    # A was called in training and is the nearest, then NEW, B, LATER; C was there in training and is farther.
    vectors = np.asarray([[1, 0], [0.8, 0], [0, 1], [0.9, 0], [0.7, 0]], np.float32)
    found = served(given, A, B, C, NEW, LATER, vectors=vectors)
    task = np.asarray([1, 0], np.float32)

    def order(*history: ToolId) -> list[str]:
        chance, end = found.after(history, task)
        named = dict(zip((*found.slots, "END"), (*chance.tolist(), end), strict=True))
        return sorted(named, key=lambda tool: -named[tool])

    # The network says A .9, B .09, END .01, and next to nothing of the others. Of the nearest, NEW is second and LATER
    # fourth, and they take these places; C, whom nobody called, does not.
    assert order() == [A, NEW, B, LATER, "END", C]
    # Of those left after A, NEW is the nearest and LATER the third; A keeps what the network says of it.
    assert order(A) == [NEW, A, LATER, B, "END", C]
    # A task that named NEW has led to it: LATER is second of what is left.
    assert order(A, NEW)[:3] == [A, LATER, B]
    # Two new tools that are the nearest are the first two, in this order: odds just above 90, and between that and 90.
    vectors[3:] = [[0.9, 0], [0.85, 0]]
    vectors[0] = [0.1, 0]
    found.align((A, B, C, NEW, LATER), vectors)
    assert order() == [NEW, LATER, A, B, "END", C]
    chance, _ = found.after((), task)
    assert np.allclose(chance[3:] / chance[0], 1, atol=2e-3)
    # Halfway, in log-odds, between A and B: what takes the second place after a tool that was called in training.
    vectors[0], vectors[3] = [1, 0], [0.1, 0]
    found.align((A, B, C, NEW, LATER), vectors)
    chance, _ = found.after((), task)
    assert chance[4] / chance[0] == pytest.approx((9 / 90) ** 0.5, rel=0.02)
    assert served(given, A, B, C, NEW, LATER).after((), None)[0].argmax() == 0


@requirement("dtdr:unseen")
def test_a_tool_whose_text_is_expected_next_ranks_before_those_that_are_not() -> None:
    # After a call the text is expected in the direction of that call's tool, a quarter turn on; the task says nothing.
    calls = np.zeros((8, 2), np.float32)
    calls[2:4] = [[0, 1], [-1, 0]]
    aim = NextText(np.zeros((2, 2), np.float32), calls, np.zeros(2, np.float32))
    found = served(model(next_text=aim), A, B, NEW, vectors=np.asarray([[2, 0], [0, 2], [-1, 0]], np.float32))
    part = found.parts((A,), found.of_task(np.asarray([1, 0], np.float32), ()))
    # Towards (0, 2): 0, 4 / 2 and 0 by length, in standard deviations.
    assert listed(part[AT["aim"]]) == [-0.7071, 1.4142, -0.7071, 0.0]
    assert listed(part[AT["unseen_aim"]]) == [0.0, 0.0, -0.7071, 0.0]
    assert listed(found.parts((A,), found.of_task(None, ()))[AT["aim"]]) == [0.0] * 4


def test_beyond_some_nearness_only_a_tool_without_a_past_gains_by_its_text() -> None:
    tools = [ToolId(f"s__{number}") for number in range(20)]
    for first in (A, NEW):
        vectors = np.zeros((21, 2), np.float32)
        vectors[0, 0] = 1
        found = served(model(), first, *tools, vectors=vectors)
        part = found.parts((), found.of_task(np.asarray([1, 0], np.float32), ()))
        # One of 21 at 1, the others at 0: 20 ** 0.5 standard deviations.
        assert listed(part[AT["meaning"], :2]) == [2.5, -0.2236]
        assert listed(part[AT["unseen_meaning"], :2]) == [4.4721 * (first == NEW), -0.2236]


def test_texts_are_compared_with_what_the_first_encoder_read_of_the_task() -> None:
    wide = model().network._replace(query=np.zeros((4, 2), np.float32))
    given = model(network=wide, dimension=4, lens=np.eye(4, 2, dtype=np.float32), next_text=no_next_text(4))
    found = served(given, A, B, vectors=np.asarray([[1, 0], [0, 1]], np.float32))
    assert listed(found.of_task(np.asarray([0, 1, 1, 0], np.float32), ()).meaning) == [-1.0, 1.0]


def test_no_tools_means_that_the_task_is_done() -> None:
    found = Dtdr(model())
    assert found.after((A,)) == (pytest.approx(np.zeros(0)), 1.0)


def test_a_vector_of_another_encoder_is_not_read() -> None:
    given = model(asked=weights(end=5.0), unasked=weights(end=-5.0))
    found = served(given, vectors=np.ones((2, 7), np.float32))
    assert found.after((), np.ones(7, np.float32))[1] < 0.1


def test_the_score_is_how_many_times_likelier_than_chance_a_tool_is() -> None:
    found = served(model(unasked=weights(called=-1.0)))
    odds = np.exp([-1.0, 0.0, 0.0])
    expected = np.log1p(2 * odds / odds.sum())
    assert listed(found.score(Query(history=(A,)), None)) == listed(expected[:2])


def test_what_a_task_gives_is_worked_out_once_and_anew_for_another_catalog() -> None:
    found = served(model())
    vector = np.asarray([1, 0], np.float32)
    first = found.of_task(vector, ("a",))
    assert found.of_task(vector.copy(), ("a",)) is first
    assert found.of_task(vector, ("b",)) is not first
    found.align((A, B, C), None)
    assert len(found.of_task(vector, ("b",)).meaning) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tools": (A, B, C)}, "history has the shape .*with 3 tools"),
        ({"tasks": np.zeros((1, 2), np.float32)}, "tasks has the shape .*2 lists of calls"),
        ({"next_text": no_next_text(3)}, "aim task has the shape"),
        ({"lens": np.eye(3, dtype=np.float32)}, "lens has the shape"),
        ({"calls": model().calls._replace(classes=np.full((2, 2), 7, np.int32))}, "lists of calls name class 7"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_together_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Dtdr.loads(model(**changes).dumps())


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("history", [(), (A,), (A, B, A), (ToolId("x__gone"), NEW), (A, B) * 12])
def test_a_prediction_is_the_weighted_sum_of_its_parts(history: tuple[ToolId, ...], asked: bool) -> None:
    draw = np.random.default_rng(7)
    known = model(
        asked=tuple(draw.standard_normal(len(PARTS)).tolist()),
        unasked=tuple(draw.standard_normal(len(PARTS)).tolist()),
        next_text=NextText(*(draw.standard_normal(part.shape).astype(np.float32) for part in no_next_text(2))),
    )
    vectors = draw.standard_normal((5, 2)).astype(np.float32)
    found = served(known, A, None, B, C, NEW, vectors=vectors)
    task = found.of_task(np.asarray([0.6, 0.8], np.float32) if asked else None, ("send mail",))
    summed = task.weights @ found.parts(history, task)
    summed[1] = -np.inf
    expected = np.exp(summed - summed.max())
    expected /= expected.sum()
    chances, end = found.after(history, np.asarray([0.6, 0.8], np.float32) if asked else None, ("send mail",))
    assert np.append(chances, end) == pytest.approx(expected, abs=1e-5)


def test_a_model_that_was_kept_predicts_as_before_and_holds_its_large_parts_in_half_precision() -> None:
    draw = np.random.default_rng(5)

    def some(*shape: int) -> Floats:
        # Numbers that half precision keeps as they are.
        return (draw.integers(-40, 40, shape) / 32).astype(np.float32)

    given = model(
        network=Network(some(5, 2), some(rows_of(2), 2), some(2), some(2), some(2, 3), some(3)),
        lsa=Lsa(("read", "mail"), some(2, 3)), next_text=NextText(some(2, 2), some(8, 2), some(2)), lens=some(5, 2),
        tasks=some(2, 2), asked=tuple(some(len(PARTS)).tolist()),
    )  # fmt: skip
    texts = some(3, 2)
    one, other = (served(each, A, B, NEW, vectors=texts) for each in (given, read_model(given.dumps())))
    for part in (other.model.tasks, other.model.lsa.projection, *other.model.next_text):
        assert part.dtype == np.float16
    for history in ((), (A,), (A, NEW, B)):
        chances = [each.after(history, np.asarray([1, 0], np.float32), ("read mail",)) for each in (one, other)]
        assert np.allclose(chances[0][0], chances[1][0], atol=1e-6)
        assert chances[0][1] == pytest.approx(chances[1][1], abs=1e-6)


def test_a_model_that_was_written_with_more_digits_predicts_the_same_to_the_last_bit() -> None:
    draw = np.random.default_rng(5)
    classes = 300
    tools = tuple(ToolId(f"t__{number}") for number in range(classes))
    given = make_model(tools, 50)
    header, arrays = unpack(given, "dtdr", VERSION)
    assert arrays["network_history"].dtype == np.float16
    older = {**arrays, "network_history": arrays["network_history"].astype(np.float32)}
    told = {key: value for key, value in header.items() if key not in ("method", "version")}
    one, other = (Dtdr.loads(each) for each in (given, pack("dtdr", VERSION, told, older)))
    assert one.model.calls.classes.dtype == np.int16
    wide = Dtdr(replace(other.model, calls=PastCalls(*(arrays[f"calls_{name}"] for name in PastCalls._fields))))
    for each in (one, other, wide):
        each.align(tools, None)
    for length in range(25):
        history = tuple(tools[number] for number in draw.integers(0, classes, length))
        chances = [each.after(history, None, ("echo text twice",)) for each in (one, other, wide)]
        assert len({(found.tobytes(), end) for found, end in chances}) == 1


def test_calls_that_are_beyond_all_that_were_seen_leave_the_prior() -> None:
    # What is kept of one short walk fits a byte; the numbers of these calls do not.
    graph = CallGraph([[0, 1]], classes=3_000)
    assert graph.after([2_999, 2_999]).tolist() == graph.prior.tolist()
    assert graph.after([0]).argmax() == 1


def test_a_served_model_does_not_import_masked_arrays(tmp_path: Path) -> None:
    # numpy loads them only when asked, and they take two megabytes.
    (tmp_path / "model").write_bytes(model().dumps())
    code = (
        "import sys; from pathlib import Path; from foretool.learning.rankers.dtdr import Dtdr;"
        " found = Dtdr.loads(Path(sys.argv[1]).read_bytes()); found.align(('s__beta', 's__alpha', 's__new'), None);"
        " found.after(['s__alpha']); print('numpy.ma' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("False\n", "")


@requirement("learn:familiar")
def test_how_like_a_past_task_a_task_is() -> None:
    found = served(model())

    def familiar(*vector: float) -> float:
        return round(found.familiarity(np.asarray(vector, np.float32), ("a task",)), 3)

    # The past tasks are (1, 0) and (0, 1).
    assert familiar(1, 0) == 1.0
    assert familiar(0.7071, 0.7071) == round((0.7071 - dtdr.FOREIGN) / (dtdr.KNOWN - dtdr.FOREIGN), 3)
    assert familiar(0.5, -0.866) == round((0.5 - dtdr.FOREIGN) / (dtdr.KNOWN - dtdr.FOREIGN), 3)
    assert familiar(-0.6, -0.8) == 0.0
    # Without words nothing can be compared: the calls alone count; nor is a task like any where nobody recorded words.
    assert found.familiarity(None, ()) == 1.0
    assert served(model(tasks=np.zeros((2, 2), np.float32))).familiarity(np.ones(2, np.float32), ("a task",)) == 0.0

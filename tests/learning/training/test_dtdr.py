"""Training what comes next, on a world small enough to know what is right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace
from requirements import requirement

from foretool.learning.rankers.dtdr import Dtdr
from foretool.learning.rankers.dtdr_model import PARTS
from foretool.learning.training import Material, TooLittle
from foretool.learning.training.dtdr import (
    METHOD,
    PRIOR,
    DtdrTrainer,
    ListwiseStep,
    Recipe,
    choose_new,
    fit_listwise,
    main_directions,
)
from foretool.learning.training.perceptron import NetworkPlan
from foretool.retrieval.model_format import Floats
from foretool.retrieval.ranking import Query
from foretool.storage.records import Episode, Tool, ToolId

WORDS = ("book", "train", "hotel", "read", "mail", "file")
TOOLS = ("rail__search", "rail__book", "inn__search", "inn__book", "post__list", "post__read")
SMALL = Recipe(
    networks=1, plan=NetworkPlan(hidden=32, batch=16, rate=1e-2, decay=0.0), steps=120, steps_with_vectors=120
)


def embed(texts: Sequence[str]) -> Floats:
    """One direction a word."""
    found = np.asarray([[float(word in text) for word in WORDS] for text in texts], np.float32) + 1e-3
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def tool(name: str) -> Tool:
    upstream, _, own = name.partition("__")
    return Tool(ToolId(name), upstream, own, b'{"name":"x","description":"%s"}' % name.encode(), name)


def episode(task: str, *calls: str) -> Episode:
    return Episode(tuple(map(ToolId, calls)), (task,) if task else ())


def world(tasks: bool = True) -> tuple[Episode, ...]:
    """Trains are searched, then booked; so are hotels; mail is listed, then read."""
    told = [
        episode("book a train", "rail__search", "rail__book"),
        episode("book a hotel", "inn__search", "inn__book"),
        episode("read my mail", "post__list", "post__read"),
    ] * 10
    return tuple(told) if tasks else tuple(Episode(each.calls) for each in told)


def material(episodes: Sequence[Episode], *, encoder: bool = True, more: Sequence[str] = ()) -> Material:
    tools = tuple(map(tool, (*TOOLS, *more)))
    return Material(tools, tuple(episodes), {}, embed if encoder else None, embed if encoder else None)


def trained(given: Material) -> Dtdr:
    model = Dtdr.loads(DtdrTrainer(SMALL).train(given, lambda what, share: None))
    tools = [each.id for each in given.tools]
    model.align(tools, given.documents(list(tools)) if given.documents else None)
    return model


def best(model: Dtdr, history: Sequence[str], task: str, *, encoder: bool = True) -> str:
    """The likeliest next tool, or END."""
    vector = embed([task])[0] if task and encoder else None
    chance, end = model.after(tuple(map(ToolId, history)), vector, (task,) if task else ())
    return "END" if end > chance.max() else TOOLS[int(chance.argmax())]


@requirement("dtdr:next")
def test_the_task_decides_where_to_begin_and_the_history_how_to_go_on() -> None:
    model = trained(material(world()))
    for task, first, second in (("book a train", *TOOLS[:2]), ("book a hotel", *TOOLS[2:4]), ("read mail", *TOOLS[4:])):
        assert [best(model, history, task) for history in ((), (first,), (first, second))] == [first, second, "END"]


@requirement("dtdr:no-query")
def test_without_a_task_history_alone_decides() -> None:
    model = trained(material(world()))
    assert [best(model, history, "") for history in (TOOLS[:1], TOOLS[2:3], TOOLS[4:6])] == [TOOLS[1], TOOLS[3], "END"]


@requirement("dtdr:no-query")
def test_episodes_without_tasks_are_learned_from() -> None:
    model = trained(material(world(tasks=False)))
    assert [best(model, history, "") for history in (TOOLS[:1], TOOLS[2:3], TOOLS[4:6])] == [TOOLS[1], TOOLS[3], "END"]


def test_without_an_encoder_the_words_of_a_task_do() -> None:
    model = trained(material(world(), encoder=False))
    assert best(model, (), "book a hotel", encoder=False) == "inn__search"


@pytest.mark.slow
def test_where_most_tasks_have_no_vectors_the_words_of_all_are_learned() -> None:
    few, many = world()[:14], tuple(replace(each, at=1.0) for each in world()[14:])
    given = replace(material(few), unread=many)
    every = replace(material((*few, *many), encoder=False), tools=given.tools)
    by_words = DtdrTrainer(SMALL).train(given, lambda what, share: None)
    assert by_words == DtdrTrainer(SMALL).train(every, lambda what, share: None)
    assert Dtdr.loads(by_words).model.dimension == 0
    # With vectors of most tasks, the others take no part.
    most = material(world())
    assert DtdrTrainer(SMALL).train(replace(most, unread=many), lambda what, share: None) == DtdrTrainer(SMALL).train(
        most, lambda what, share: None
    )


@pytest.mark.slow
def test_parts_that_were_weighed_by_words_are_weighed_again_with_vectors() -> None:
    by_words = DtdrTrainer(SMALL).train(material(world(), encoder=False), lambda what, share: None)
    given = material(world())
    with_vectors = DtdrTrainer(SMALL).train(given, lambda what, share: None)
    assert DtdrTrainer(SMALL).train(replace(given, earlier=by_words), lambda what, share: None) == with_vectors


@pytest.mark.slow
def test_the_same_material_gives_the_same_model() -> None:
    given = material(world())
    first, second = (DtdrTrainer(SMALL).train(given, lambda what, share: None) for _ in range(2))
    assert first == second


def test_too_few_episodes_are_refused_with_a_count() -> None:
    with pytest.raises(TooLittle, match="tasks with calls: 3 of the 20 that it takes"):
        METHOD.train(material(world()[:3]), lambda what, share: None)


def test_progress_rises_to_the_end() -> None:
    told: list[float] = []
    DtdrTrainer(SMALL).train(material(world()), lambda what, share: told.append(share))
    assert told == sorted(told) and told[0] == 0.0 and told[-1] == pytest.approx(1.0)


def test_a_model_keeps_all_that_was_learned_when_it_is_read_again() -> None:
    given = material(world())
    model = trained(given)
    again = Dtdr.loads(model.model.dumps())
    again.align([each.id for each in given.tools], None)
    model.align([each.id for each in given.tools], None)
    query = Query(("read my mail",), history=(ToolId("post__list"),))
    assert np.allclose(again.score(query, embed(query.lines)[0]), model.score(query, embed(query.lines)[0]), atol=1e-4)


@requirement("dtdr:unseen")
def test_a_tool_that_is_installed_later_is_predicted_where_a_task_names_it_and_nowhere_else() -> None:
    given = material(world(), more=("files__read_file",))
    model = Dtdr.loads(DtdrTrainer(SMALL).train(material(world()), lambda what, share: None))
    assert given.documents is not None
    tools = [each.id for each in given.tools]
    model.align(tools, given.documents([name.replace("_", " ") for name in tools]))

    def of_new(task: str, *history: str) -> float:
        chance, _ = model.after(tuple(map(ToolId, history)), embed([task])[0], (task,))
        return float(chance[-1])

    # 0.15 is what a list grows for (docs/learning.md).
    assert of_new("open a file") > 0.5
    assert of_new("read the file", "rail__search") > 0.5
    for task, *calls in (("book a train", *TOOLS[:2]), ("book a hotel", *TOOLS[2:4]), ("read my mail", *TOOLS[4:])):
        assert all(of_new(task, *calls[:done]) < 0.15 for done in range(3))


def test_tools_that_were_there_and_never_called_are_told_from_those_that_came_later() -> None:
    model = trained(material(world(), more=("files__read_file",)))
    assert model.model.idle == (ToolId("files__read_file"),)


def test_tasks_read_by_several_encoders_have_the_length_of_those_read_by_one() -> None:
    twice = lambda texts: np.concatenate([embed(texts), embed(texts)], 1)  # noqa: E731
    given = material(world())
    given = Material(given.tools, given.episodes, {}, given.documents, twice)
    model = Dtdr.loads(DtdrTrainer(SMALL).train(given, lambda what, share: None))
    assert model.model.dimension == 2 * len(WORDS) and model.model.next_text.dimension == len(WORDS)
    assert given.documents is not None
    model.align([each.id for each in given.tools], given.documents([each.id for each in given.tools]))
    chance, _ = model.after((), twice(["book a hotel"])[0], ("book a hotel",))
    assert TOOLS[int(chance.argmax())] == "inn__search"


def test_the_lens_keeps_the_directions_in_which_tasks_differ() -> None:
    said = np.asarray([[3, 0, 0], [0, 2, 0], [0, 0, 0]], np.float32)
    seen = said @ main_directions(said)
    assert np.allclose(seen @ seen.T, said @ said.T, atol=1e-5)


def test_the_listwise_layer_finds_the_part_that_is_right() -> None:
    parts = np.zeros((len(PARTS), 3), np.float32)
    parts[PARTS.index("kin")] = [1, 0, -1]
    steps = [ListwiseStep(parts, np.asarray([0.9, 0.1, 0.0], np.float32))] * 50
    weights = dict(zip(PARTS, fit_listwise(steps, [], ridge=0.01), strict=True))
    # The softmax of w, 0, -w has the mean slope 0.9 where (e^w - e^-w) / (e^w + 1 + e^-w) is: w = 2.376.
    assert weights.pop("kin") == pytest.approx(2.376, abs=0.01)
    assert weights == {name: pytest.approx(PRIOR[name]) for name in weights}


def test_what_was_hidden_moves_only_the_weights_of_unseen_tools() -> None:
    parts = np.zeros((len(PARTS), 2), np.float32)
    parts[PARTS.index("unseen")] = [1, 0]
    parts[PARTS.index("network")] = [0, 1]
    hidden = [ListwiseStep(parts, np.asarray([0.5, 0.5], np.float32))] * 50
    weights = dict(zip(PARTS, fit_listwise([], hidden, ridge=0.01), strict=True))
    assert weights["network"] == PRIOR["network"]
    assert weights["unseen"] == pytest.approx(PRIOR["network"], abs=0.05)


def test_every_tenth_tool_in_the_order_of_its_calls_is_new_and_one_at_least() -> None:
    for seed in range(20):
        chosen = sorted(choose_new(range(40), seed))
        assert len(chosen) == 4 and {later - earlier for earlier, later in pairwise(chosen)} == {10}
        assert len(choose_new([3, 1], seed)) == 1

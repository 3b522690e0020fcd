"""Learning reads a text once by each encoder, and keeps what it read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from fakes import bare_server
from tiny_model import HashEncoder

from foretool.learning import encoded_texts
from foretool.learning.encoded_texts import EncodedTexts
from foretool.learning.replay import Replay
from foretool.learning.timeline import Timeline
from foretool.retrieval.clauses import split_task
from foretool.retrieval.corpus import Corpus, digest, digest_query
from foretool.retrieval.encoders import Weights
from foretool.retrieval.ranking import Query
from foretool.server.catalog.catalog import Catalog
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.opening import open_store
from foretool.storage.records import Episode, ToolId


def test_methods_get_the_vectors_of_all_encoders_each_text_read_once() -> None:
    encoders = [HashEncoder("one", dimension=8), HashEncoder("other", dimension=4)]
    weights = [Weights(each.name, each.name, "MIT", kind="sentence-transformers") for each in encoders]
    with open_store(":memory:") as store:
        texts = EncodedTexts(weights, encoders, store)
        for _ in range(2):
            both = texts.queries(["book a train", "read mail"])
            first = EncodedTexts(weights[:1], encoders[:1], store)
            assert np.array_equal(both[:, :8], first.queries(["book a train", "read mail"]))
            assert np.linalg.norm(both[:, 8:], axis=1) == pytest.approx([1.0, 1.0])
        assert [sorted(each.asked) for each in encoders] == [["book a train", "read mail"]] * 2


class Slow(HashEncoder):
    """An encoder whose every text takes processor time."""

    clock = 0.0

    def queries(self, texts: Sequence[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        Slow.clock += len(texts)
        return super().queries(texts)


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> type[Slow]:
    """One text takes one second of processor time."""
    Slow.clock = 0.0
    monkeypatch.setattr(encoded_texts.time, "process_time", lambda: Slow.clock)
    monkeypatch.setattr(encoded_texts, "EMBEDDED_AT_ONCE", 1)
    return Slow


def task(number: int, tool: str) -> Episode:
    return Episode((ToolId(tool),), (f"task {number}",), at=float(number))


def test_a_run_embeds_no_more_than_it_may_and_the_next_one_goes_on(spent: type[Slow]) -> None:
    weights = [Weights("one", "one", "MIT", kind="sentence-transformers")]
    # The first one is of a tool that is used once, all others are of one tool.
    episodes = [task(0, "rare"), *(task(at, "often") for at in range(1, 40)), Episode((ToolId("often"),))]
    with open_store(":memory:") as store:

        def run(spend_s: float) -> list[str]:
            texts = EncodedTexts(weights, [spent("one", dimension=8)], store)
            return ["".join(each.tasks) for each in texts.choose(episodes, spend_s)]

        assert run(0.0) == [""]
        # Rare tools first, then the latest, in the order of the log; what says nothing needs no vector.
        assert run(5.0) == ["task 0", "task 36", "task 37", "task 38", "task 39", ""]
        assert run(0.0) == ["task 0", "task 36", "task 37", "task 38", "task 39", ""]
        assert len(run(5.0)) == 11
        assert len(run(100.0)) == len(episodes)
        assert spent.clock == 40.0


def test_a_replay_reads_the_vectors_that_training_kept(spent: type[Slow]) -> None:
    weights = [Weights("one", "one", "MIT", kind="sentence-transformers")]
    catalog = Catalog([bare_server("web")])
    catalog.replace("web", [raw({"name": "open_page", "inputSchema": {"type": "object"}})])
    with open_store(":memory:") as store:
        texts = EncodedTexts(weights, [spent("one", dimension=8)], store)
        texts.choose([task(1, "a"), task(2, "a")])
        (head,) = texts.meaning(catalog, Corpus(catalog.tools())).heads
        assert np.array_equal(head.encoder.queries(["task 1"]), texts.queries(["task 1"]))
        assert spent.clock == 2.0


def test_a_replay_embeds_no_clause_that_nobody_has_read_before(spent: type[Slow]) -> None:
    weights = [Weights("one", "one", "MIT", kind="sentence-transformers")]
    catalog = Catalog([bare_server("web")])
    names = ("open_page", "read_mail", "book_train")
    catalog.replace("web", [raw({"name": name, "inputSchema": {"type": "object"}}) for name in names])
    upstream_of = {tool.id: tool.upstream for tool in catalog.tools()}
    task = "Open the page of the railway company in Lyon. Then read my latest mail and book a train to Paris on Friday."
    assert len(split_task([task])) == 4
    with open_store(":memory:") as store:
        texts = EncodedTexts(weights, [spent("one", dimension=8)], store)
        timeline = Timeline([], texts.choose([Episode((tool,), (task,)) for tool in upstream_of]), upstream_of)
        assert spent.clock == 1.0

        def score() -> dict[str, list[float]]:
            replay = Replay(catalog, EncodedTexts(weights, [spent("one", dimension=8)], store), timeline, upstream_of)
            return {name: each.tolist() for name, each in replay.pipeline({}).parts(Query((task,))).items()}

        whole = score()
        assert spent.clock == 1.0
        texts.queries(split_task([task]))  # as a proxy that has searched with it
        assert spent.clock == 4.0
        assert score() != whole
        assert spent.clock == 4.0


def test_vectors_of_chinese_tasks_from_before_they_were_read_in_english_are_not_used() -> None:
    task, encoder = "打开 issue", HashEncoder("one", dimension=8)
    weights = Weights(encoder.name, encoder.name, "MIT", kind="sentence-transformers")
    with open_store(":memory:") as store:
        store.vectors.save(weights.query_key, {digest(task): np.ones(8, np.float32).tobytes()})
        texts = EncodedTexts([weights], [encoder], store)
        assert not texts.has_vectors([task])
        assert np.array_equal(texts.queries([task]), encoder.queries([task]))
        assert store.vectors.known(weights.query_key) == {digest(task), digest_query(task)}

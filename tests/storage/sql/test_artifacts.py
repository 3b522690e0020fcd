"""Models are kept with their checksum; one of each kind is served, and a rollback serves its predecessor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stored_records import connection_of

from foretool.storage.opening import open_store
from foretool.storage.records import Episode, ToolId
from foretool.storage.sql.artifacts import KEPT_MODELS, ArtifactStore
from foretool.storage.store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:") as store:
        yield store


@pytest.fixture
def artifacts(store: Store) -> ArtifactStore:
    return store.artifacts


def test_only_the_report_of_a_model_that_was_not_better_is_kept(artifacts: ArtifactStore) -> None:
    artifacts.add("dtdr", b"old", {}, promote=True)
    worse = artifacts.add("dtdr", b"new", {"better": False}, promote=False)
    assert (worse.active, worse.size, worse.promoted_at, worse.report) == (False, 0, 0.0, {"better": False})
    assert [data for _, data in artifacts.load_intact("dtdr")] == [b"old"]
    assert [each.number for each in artifacts.history("dtdr")] == [2, 1]


def test_a_rollback_serves_the_previous_model_and_then_none(artifacts: ArtifactStore) -> None:
    first = artifacts.add("dtdr", b"first", {}, promote=True)
    second = artifacts.add("dtdr", b"second", {}, promote=True)
    before = artifacts.version
    back = artifacts.roll_back("dtdr")
    assert back is not None
    assert (back[0].id, back[1] and back[1].id) == (second.id, first.id)
    assert [data for _, data in artifacts.load_intact("dtdr")] == [b"first"]
    assert artifacts.version == before + 1
    again = artifacts.roll_back("dtdr")
    assert again is not None
    assert (again[0].id, again[1]) == (first.id, None)
    assert artifacts.load_intact("dtdr") == []
    assert artifacts.roll_back("dtdr") is None


def test_only_the_latest_models_keep_their_bytes(artifacts: ArtifactStore) -> None:
    for number in range(KEPT_MODELS + 2):
        artifacts.add("dtdr", f"model {number}".encode(), {}, promote=True)
    sizes = [each.size for each in artifacts.history("dtdr")]
    assert sizes == [7] * KEPT_MODELS + [0, 0]
    assert [data for _, data in artifacts.load_intact("dtdr")] == [b"model 4", b"model 3", b"model 2"]


def test_kinds_of_models_are_independent(artifacts: ArtifactStore) -> None:
    artifacts.add("dtdr", b"a", {}, promote=True)
    artifacts.add("tgr", b"b", {}, promote=True)
    assert {kind: each.number for kind, each in artifacts.served().items()} == {"dtdr": 1, "tgr": 1}
    artifacts.roll_back("dtdr")
    assert list(artifacts.served()) == ["tgr"]
    assert artifacts.history("tgr")[0].number == 1


def test_a_demonstration_is_kept_once(artifacts: ArtifactStore) -> None:
    one = Episode((ToolId("a"), ToolId("b")), ("do it",), ((0, 1),), source="import", key="1")
    two = Episode((ToolId("b"),), ("and this",), source="import", key="2")
    assert artifacts.add_demonstrations([one, two], at=1.0) == 2
    assert artifacts.add_demonstrations([one], at=2.0) == 0
    assert list(artifacts.latest_demonstrations()) == [two, one]


def test_a_demonstration_of_an_earlier_version_is_not_added_again(artifacts: ArtifactStore, store: Store) -> None:
    """The digest is that of the JSON that earlier versions wrote, which had no arguments."""
    one = Episode((ToolId("a"),), ("do",), ((0, 0),), source="import", key="f:1")
    artifacts.add_demonstrations([one], at=1.0)
    (written,) = connection_of(store).execute("SELECT episode FROM demonstrations").fetchone()
    assert written == (
        '{"calls":["a"],"tasks":["do"],"edges":[[0,0]],"ended":true,"source":"import","at":0.0,"key":"f:1"}'
    )


def test_secrets_in_the_arguments_of_a_demonstration_are_hidden(artifacts: ArtifactStore) -> None:
    secret = "ghp_" + "a1B2" * 9
    told = Episode((ToolId("a"),), ("do",), source="import", key="f:1", arguments=(f'{{"token":"{secret}","n":1}}',))
    artifacts.add_demonstrations([told])
    ((arguments,),) = (each.arguments for each in artifacts.latest_demonstrations())
    assert secret not in arguments and '"n":1' in arguments

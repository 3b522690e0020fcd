"""Slow encoders are asked ahead; what was not asked is near to nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from requirements import requirement

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from tiny_model import HashEncoder  # noqa: E402

from foretool.retrieval.encoders import EncoderError, Weights, open_encoder  # noqa: E402
from foretool.retrieval.encoders.slow import Ahead  # noqa: E402

WEIGHTS = Weights("some/model", "some/model", "licence on its model card", kind="sentence-transformers")


class Model:
    """As much of `sentence_transformers.SentenceTransformer` as is used."""

    def __init__(self, name: str, device: str) -> None:
        if name != "some/model" or device != "cpu":
            raise OSError(f"{name} is not a local folder\nand much more")

    def encode_document(self, texts: list[str], batch_size: int) -> Any:
        return np.array([[len(text), 0.0] for text in texts])

    def encode_query(self, texts: list[str], batch_size: int) -> Any:
        return np.array([[0.0, len(text)] for text in texts])


def test_what_was_fetched_is_known_and_the_rest_is_zero() -> None:
    remote = HashEncoder("slow")
    encoder = Ahead(remote)
    encoder.fetch(["open issue", "report bug"])
    encoder.fetch(["open issue"])
    found = encoder.queries(["report bug", "weather"])
    np.testing.assert_allclose(found[0], remote.queries(["report bug"])[0])
    assert not found[1].any() and found.shape == (2, 64)
    assert remote.asked == ["open issue", "report bug", "report bug"]
    assert encoder.name == "slow"
    np.testing.assert_allclose(encoder.documents(["weather"]), remote.documents(["weather"]))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


@pytest.mark.usefixtures("library")
def test_queries_and_documents_are_asked_in_their_own_way() -> None:
    encoder = open_encoder(WEIGHTS)
    assert encoder.documents(["ab"]).tolist() == [[1.0, 0.0]]
    assert encoder.queries(["ab"]).tolist() == [[0.0, 1.0]]


@pytest.mark.usefixtures("library")
def test_a_folder_is_loaded_by_its_path() -> None:
    folder = Weights("model", "some/model", "", file="some/model", kind="sentence-transformers")
    assert open_encoder(folder).queries(["ab"]).tolist() == [[0.0, 1.0]]


@pytest.mark.usefixtures("library")
def test_a_model_that_is_not_there_is_named_in_one_line() -> None:
    other = Weights("other/model", "other/model", "", kind="sentence-transformers")
    with pytest.raises(
        EncoderError, match="'other/model': not in the cache and cannot be downloaded: other/model is not a"
    ):
        open_encoder(other)


@requirement("trust:folder:python")
@pytest.mark.usefixtures("library")
def test_a_folder_of_a_repository_never_stands_in_for_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EncoderError, match="would be loaded in its place; start foretool in another folder"):
        open_encoder(WEIGHTS)

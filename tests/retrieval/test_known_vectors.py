"""Vectors that come with foretool serve the tools that they were made of, also under another server's name."""

from __future__ import annotations

from array import array

import pytest
from msgspec.structs import replace

from bench.learning.known_vectors import encode_vectors
from foretool.retrieval.document import Document, document
from foretool.retrieval.encoders import MANIFEST
from foretool.retrieval.encoders.base import WORDED_LENGTH
from foretool.retrieval.known_tools import FILE as TOOLS
from foretool.retrieval.known_tools import KnownTool, KnownTools, read_line, sketch_definition, write_line
from foretool.retrieval.known_vectors import KnownVectors, hash_of, read_file
from tests.support.tools import tool

TEXT = "Reports how warm and how wet it will be at a place on each of the next days"
WISHES = ("a coat today?", "rain on Friday in Leeds", "the washing hangs outside", "weather outlook")
VECTOR = (0.6, -0.8, 0.0, 0.1)


def doc(description: str = TEXT, server: str = "mine", wordings: tuple[str, ...] = WISHES) -> Document:
    read = document(tool(server, "get_forecast", description, {"place": {"type": "string"}}))
    return replace(read, wordings=wordings)


KNOWN = KnownTool("get forecast", "weather", sketch_definition(doc()), WISHES)


def shipped() -> KnownVectors:
    return KnownVectors(encode_vectors("tiny@1", 4, [(KNOWN, VECTOR)]), KnownTools(write_line(KNOWN).encode()))


@pytest.mark.parametrize("server", ["weather", "mine"])
def test_a_known_tool_has_its_vector_nearly_as_it_was(server: str) -> None:
    found = shipped().find(doc(server=server))
    assert found is not None
    numbers = array("f", found)
    assert sum(each * each for each in numbers) == pytest.approx(WORDED_LENGTH**2)
    length = sum(each * each for each in VECTOR) ** 0.5
    assert list(numbers) == pytest.approx([WORDED_LENGTH * each / length for each in VECTOR], abs=0.01)


@pytest.mark.parametrize(
    "other",
    [doc(f"{TEXT}. By radar, hour, night, altitude."), doc(wordings=("my own wording",)), doc(wordings=())],
    ids=["another version", "other wordings", "no wordings"],
)
def test_a_tool_that_differs_has_none(other: Document) -> None:
    assert shipped().find(other) is None


@pytest.mark.parametrize("length", [0, 10, -1, None])
def test_a_file_that_is_not_all_there_is_refused(length: int | None) -> None:
    whole = encode_vectors("tiny@1", 4, [(KNOWN, VECTOR)])
    with pytest.raises(ValueError, match=r"first line is damaged|expected rows of 12 bytes, found \d+"):
        KnownVectors(whole + b"\0" if length is None else whole[:length], KnownTools(b""))


def test_the_file_was_made_by_the_encoder_that_comes_with_foretool_for_most_of_the_known_tools() -> None:
    found = read_file()
    assert found.encoder == MANIFEST[0].key
    lines = (line.partition(b"\t") for line in TOOLS.read_bytes().splitlines())
    tools = [read_line(name.decode(), rest) for name, _, rest in lines]
    assert sum(hash_of(each) in found._starts for each in tools) / len(tools) > 0.8

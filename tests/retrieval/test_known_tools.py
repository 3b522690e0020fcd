from __future__ import annotations

import pytest

from foretool.retrieval.document import Document, document
from foretool.retrieval.known_tools import (
    FILE,
    SKETCHED,
    KnownTool,
    KnownTools,
    known_tools,
    read_line,
    share_in_common,
    sketch_definition,
    write_line,
)
from foretool.retrieval.words import in_words
from foretool.storage.records import ToolId
from tests.support.tools import tool

TEXT = "Reports how warm and how wet it will be at a place on each of the next days"
WISHES = ("a coat today?", "rain on Friday in Leeds", "the washing hangs outside", "weather outlook")


def doc(name: str, description: str = TEXT, *parameters: str) -> Document:
    return document(tool("mine", name, description, {each: {"type": "string"} for each in parameters}))


def known(*servers: str, text: str = TEXT, parameters: tuple[str, ...] = ("place", "days")) -> KnownTools:
    sketch = sketch_definition(doc("forecast", text, *parameters))
    lines = [write_line(KnownTool("get forecast", server, sketch, WISHES)) for server in servers]
    return KnownTools("".join(lines).encode())


@pytest.mark.parametrize("name", ["get_forecast", "getForecast", "get-forecast"])
def test_a_tool_with_this_name_and_these_words_is_known(name: str) -> None:
    found = known("weather").find(doc(name, TEXT, "place", "days"))
    assert found is not None and found.wishes == WISHES and found.server == "weather"


def test_another_version_with_most_of_the_words_is_known() -> None:
    assert known("weather").find(doc("get_forecast", f"{TEXT}. Now also by the hour.", "place", "unit"))


@pytest.mark.parametrize(
    "other",
    [
        doc("get_forecast"[:-1], TEXT, "place", "days"),
        doc("get_forecast", "Predicts the sales of a product from earlier quarters", "product", "quarters"),
        doc("get_forecast", "Predicts sales", "place", "days"),
        doc("get_forecast", ""),
        doc(""),
    ],
    ids=["another name", "another tool", "same parameters alone", "says nothing", "no name"],
)
def test_a_tool_that_only_looks_alike_is_not_known(other: Document) -> None:
    assert known("weather").find(other) is None


def test_of_several_servers_with_the_name_the_one_with_most_in_common_counts() -> None:
    one, other = sketch_definition(doc("f", TEXT)), sketch_definition(doc("f", f"{TEXT} and nights, by radar"))
    lines = [write_line(KnownTool("f", name, sketch, WISHES)) for name, sketch in (("a", one), ("b", other))]
    table = KnownTools("".join(lines).encode())
    assert [
        found.server for text in (TEXT, f"{TEXT} and nights, by radar") if (found := table.find(doc("f", text)))
    ] == [
        "a",
        "b",
    ]


def test_sketches_tell_how_much_is_in_common() -> None:
    few = sketch_definition(doc("t", "alpha beta gamma delta"))
    half = sketch_definition(doc("t", "alpha beta epsilon zeta"))
    assert share_in_common(few, few) == 1.0 and share_in_common(few, half) == pytest.approx(2 / 6)
    assert share_in_common(frozenset(), frozenset()) == 0.0
    words = [f"word{number}" for number in range(400)]
    many, most = (sketch_definition(doc("t", " ".join(some))) for some in (words[:300], words[100:]))
    assert len(many) == SKETCHED and share_in_common(many, most) == pytest.approx(0.5, abs=0.25)


def test_a_line_is_read_as_it_was_written() -> None:
    written = KnownTool("get forecast", "weather", sketch_definition(doc("f", TEXT)), WISHES)
    name, _, rest = write_line(written).encode().rstrip(b"\n").partition(b"\t")
    assert read_line(name.decode(), rest) == written


def test_the_file_is_sorted_and_whole() -> None:
    """It is searched by halves, so every line must be found where its bytes belong."""
    lines = FILE.read_bytes().splitlines()
    assert lines == sorted(set(lines)) and len(lines) > 2_000
    for line in lines:
        name, _, rest = line.partition(b"\t")
        tool = read_line(name.decode(), rest)
        assert tool.name == in_words(tool.name) and tool.server and 0 < len(tool.sketch) <= SKETCHED
        assert len(tool.wishes) == 4
        for wish in tool.wishes:
            assert wish == " ".join(wish.split()) and wish.isprintable() and 0 < len(wish) <= 120, wish


def test_the_file_knows_the_tools_of_the_demo() -> None:
    time = document(tool("clock", "get_current_time", "Get current time in a specific timezones", {"timezone": {}}))
    found = known_tools().find(time)
    assert found is not None and found.server == "mcp-server-time"
    assert known_tools().find(Document(ToolId("x__search"), "x", "search", description="Finds shoes")) is None

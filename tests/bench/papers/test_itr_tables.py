"""The tables of ITR that are measured: catalogues, episodes by hand, and all rows on a small set."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from requirements import requirement

from bench.datasets import tool_of
from bench.papers import itr_tables
from bench.papers.itr_forms import Answered, Outcome, PublishedForm
from bench.papers.itr_steps import Catalogue, Server, Step, StepSet, read_pool, read_step_set
from bench.papers.itr_tables import Bench, itr_tokens, served_tokens
from foretool.retrieval import tokens
from foretool.retrieval.itr import assemble
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId

X, Y = ToolId("s/x"), ToolId("s/y")


def server(name: str, *tools: str, instructions: str = "") -> Server:
    definitions = ({"name": tool, "description": f"{tool.replace('_', ' ')} in {name}"} for tool in tools)
    return Server(name, tuple(tool_of(name, each) for each in definitions), instructions)


def step(words: str, *needed: str) -> Step:
    return Step(words, tuple(frozenset({ToolId(tool)}) for tool in needed), tuple(map(ToolId, needed)))


MAIL = server("mail", "send_mail", "read_mail", "delete_mail", instructions="Send mail only when the user asks for it.")
SHOP = server("shop", "list_orders", "add_order")
MUSIC = server("music", "play_song", "stop_song", "find_song")
NEXT = step("delete the old mail", "mail/delete_mail")


def test_a_small_catalogue_has_the_needed_tools_then_their_neighbours_then_others() -> None:
    found = StepSet("small", [NEXT], [MAIL, SHOP], [MUSIC])
    assert [tool.id for tool in found.around(NEXT, 1).tools] == ["mail/delete_mail"]
    assert {tool.id for tool in found.around(NEXT, 3).tools} == {tool.id for tool in MAIL.tools}
    assert {each.name for each in found.around(NEXT, 5).servers} == {"mail", "shop"}
    assert len(found.around(NEXT, 7).tools) == 7
    assert found.size == 8


def test_a_server_of_the_pool_that_the_set_has_already_is_left_out() -> None:
    again = server("other-mail", "send_mail", "read_mail", "forward_mail")
    newer = server("mail", "fetch", "post")
    found = StepSet("small", [NEXT], [MAIL], [again, newer, MUSIC])
    assert found.size == 6
    assert NEXT.needed[0] in found.around(NEXT, 6).key


def test_steps_with_the_same_tools_around_them_share_a_catalogue_and_large_needs_have_none() -> None:
    other, large = step("send mail", "mail/send_mail"), step("tidy up", "mail/read_mail", "mail/delete_mail")
    found = StepSet("small", [NEXT, other, large], [MAIL], [MUSIC])
    ((_, steps),) = found.catalogues(3)
    assert steps == [NEXT, other]
    assert list(found.catalogues(7)) == []


@requirement("itr:cost-model")
def test_the_tokens_of_an_episode_with_itr_by_hand() -> None:
    at_hand = {"ITR": Outcome(1.0, 1.0, 300, 2), "ITR, widened": Outcome(1.0, 1.0, 300, 2)}
    missed = {"ITR": Outcome(0.0, 0.0, 300, 2), "ITR, widened": Outcome(1.0, 1.0, 500, 4)}
    # 300, then 2,000 of history with 300, and once more with 500.
    assert itr_tokens([at_hand, missed]) == 300 + 2300 + 2500


def test_the_tokens_of_an_episode_with_foretool_by_hand() -> None:
    steps = [step("one", X), step("two", Y), step("three", Y)]
    answer = Answered((Y,), (Y,), 50, frozenset())
    # 100; a search at 2,100 and a call that reads its answer; then the answer is still there.
    assert served_tokens(steps, [answer] * 3, frozenset({X}), 100) == (100 + 2100 + 2150 + 4150, 1)


@requirement("itr:cost-model")
def test_the_baselines_by_hand() -> None:
    catalogue = Catalogue((MAIL, SHOP))
    found = PublishedForm(catalogue, [], None)
    tools = sum(tokens.count_tokens([tool.definition.decode() for tool in catalogue.tools]))
    said = tokens.estimate(MAIL.instructions)
    assert (found.all_tools, found.all_instructions) == (tools, said)
    outcomes = found.outcomes(NEXT)
    assert outcomes["everything"].tokens == tools + said
    # The one fragment shares a word with the step, so it is retrieved.
    assert outcomes["prompt-RAG"].tokens == tools + said
    assert (outcomes["router: its first"].some, outcomes["router: its first"].tokens) == (1.0, tools + said)
    assert (outcomes["ITR"].some, outcomes["ITR"].tools) == (1.0, 2)
    # A definition of some 20 tokens costs what the shortest document of the paper does.
    one = outcomes["ITR, K_B=1"]
    assert (one.some, one.tools, one.tokens) == (1.0, 1, tokens.estimate(assemble([])) + said + 150)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    catalogs = tmp_path / "mcp_catalogs"
    catalogs.mkdir()
    for each in (MAIL, SHOP, MUSIC):
        held = {
            "server": each.name, "instructions": each.instructions or None,
            "tools": [json.loads(tool.definition) | {"inputSchema": {"type": "object"}} for tool in each.tools],
        }  # fmt: skip
        (catalogs / f"{each.name}.json").write_text(json.dumps(held))
    own = tmp_path / "mcpbench"
    own.mkdir()
    about = [{"server": "post", "name": name, "description": name.replace("_", " ")} for name in ("buy_stamp", "weigh")]
    (own / "tools.jsonl").write_text("".join(json.dumps(each) + "\n" for each in about))
    asked = [{"query": f"buy stamp number {number}", "calls": ["post/buy_stamp"]} for number in range(10)]
    (own / "dev.jsonl").write_text("".join(json.dumps(each) + "\n" for each in asked))
    return tmp_path


def test_a_size_that_no_set_has_leaves_the_others_as_they_are(data: Path) -> None:
    pool = read_pool(data)
    assert read_step_set(data, "world", pool) is None
    assert read_step_set(data, "livemcpbench", pool) is None
    steps = read_step_set(data, "mcpbench", pool)
    assert steps is not None

    async def measure() -> list[dict[str, object]]:
        with open_store(":memory:") as store:
            return list(itr_tables.rows(Bench([steps], store, encoder="none"), [4, 10, 99], Catalogue(tuple(pool))))

    found = asyncio.run(measure())
    assert {row["table"] for row in found} == {5, "5.6"}
    by = {(row["row"], row["of_tools"]): row for row in found if row["table"] == 5}
    assert by["ITR", 4]["at_hand"] == by["list + answer", 10]["at_hand"] == 1.0
    (episode, _) = (row for row in found if row["table"] == "5.6")
    assert (episode["n"], episode["searches"]) == (1, 0)


def test_the_tables_of_the_largest_size_are_printed_as_json(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--data", str(data), "--sets", "mcpbench", "--sizes", "10", "--encoder", "none", "--json"]
    itr_tables.main([*given, "--cache", str(tmp_path / "kept")])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["table"] for row in rows} == {2, 4, 5, 6, "5.6"}

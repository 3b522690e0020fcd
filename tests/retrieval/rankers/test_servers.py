from __future__ import annotations

import pytest
from tools import tool as make_tool

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.servers import NAMED, ServerNames, ServerWords
from foretool.retrieval.ranking import Query

SERVERS = (
    "postgres-dev", "postgres-prod", "github-work", "github-home", "desktop-commander", "googlemaps", "DataCenter",
    "playwright", "git", "time",
)  # fmt: skip
NAMES = ServerNames({name: ServerWords((name,)) for name in SERVERS})


def named(line: str) -> dict[str, float]:
    return {server: mention.share for server, mention in NAMES.find(line).items()}


@pytest.mark.parametrize(
    ("line", "servers"),
    [
        ("query postgres-prod", {"postgres-prod": NAMED, "postgres-dev": 0.0}),
        ("run SQL on the prod database", {"postgres-prod": 0.0}),
        ("run SQL on the production database", {"postgres-prod": 0.0}),
        ("create an issue with my work GitHub account", {"github-work": 0.0, "github-home": 0.0}),
        ("create an issue in my GitHub work account", {"github-work": NAMED, "github-home": 0.0}),
        ("create an issue, github-work", {"github-work": NAMED, "github-home": 0.0}),
        ("list folders with desktop commander", {"desktop-commander": NAMED}),
        ("how far is it, google maps", {"googlemaps": 0.0}),
        ("ask the data center", {"DataCenter": 0.0}),
        ("look it up in the data center", {"DataCenter": NAMED}),
        ("open the page with playwright", {"playwright": NAMED}),
        ("playwright: open the page", {"playwright": NAMED}),
        ("use the playwright mcp server", {"playwright": NAMED}),
        ("what time is it", {"time": 0.0}),
        ("search GitHub", {"github-work": 0.0, "github-home": 0.0}),
        ("read my mail", {}),
        ("", {}),
    ],
)
def test_a_server_gains_where_a_line_names_it_as_one_and_is_noted_for_any_word_of_its_name(
    line: str, servers: dict[str, float]
) -> None:
    assert named(line) == servers


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("open the page with playwright mcp", "open the page"),
        ("use playwright to open the page", "to open the page"),
        ("list the branches in git", "list the branches"),
        ("with playwright", ""),
    ],
)
def test_a_line_is_also_read_without_the_name_of_a_server(line: str, rest: str) -> None:
    (mention,) = NAMES.find(line).values()
    assert mention.rest == rest


def test_the_words_of_entries_tell_servers_apart() -> None:
    names = ServerNames({
        "fs1": ServerWords(("fs1",), ("home", "ada", "shop")),
        "fs2": ServerWords(("fs2",), ("home", "ada", "notes")),
        "plain": ServerWords(("plain",)),
    })  # fmt: skip
    assert names.tell_apart(["fs1", "fs2"]) == {"fs1": ("shop",), "fs2": ("notes",)}
    assert names.tell_apart(["fs1", "plain"]) == {"fs1": ("home", "ada", "shop"), "plain": ()}
    assert names.tell_apart(["unknown"]) == {}


def test_a_word_that_most_entries_have_names_none_of_them() -> None:
    names = ServerNames({f"s{n}": ServerWords((f"s{n}",), ("ada", f"folder{n}")) for n in range(4)})
    assert names.find("in the folder of ada") == {}
    assert {server: set(mention.marks) for server, mention in names.find("folder2 of ada").items()} == {
        "s2": {"folder2"}
    }


def test_the_name_of_a_server_decides_before_words_of_entries() -> None:
    tools = [make_tool(server, "read_note", "Read a note") for server in ("notes-a", "notes-b")]
    corpus = Corpus(tools)
    corpus.server_names = ServerNames({
        "notes-a": ServerWords(("notes-a",), ("work",)), "notes-b": ServerWords(("notes-b", "work")),
        "x": ServerWords(("x",)), "y": ServerWords(("y",)),
    })  # fmt: skip
    assert Pipeline(corpus).rank(Query(("read a note of work",))).ranked[0].tool == "notes-b__read_note"


def ranked(servers: dict[str, list[str]], task: str, *names: str) -> list[str]:
    """The tools that words alone rank for a task, over servers whose tools say what their names say."""
    tools = [make_tool(server, tool) for server, tools in servers.items() for tool in tools]
    corpus = Corpus(tools)
    corpus.server_names = ServerNames({server: ServerWords((server,)) for server in servers})
    return [each.tool for each in Pipeline(corpus).rank(Query(tuple(task.splitlines()), names)).ranked]


DATABASES = {"pg-dev": ["run_query", "list_tables"], "pg-prod": ["run_query", "list_tables"]}


@pytest.mark.parametrize(
    ("task", "first"),
    [
        ("run a query on prod", "pg-prod__run_query"),
        ("run a query on dev", "pg-dev__run_query"),
        ("list the tables of the production system", "pg-prod__list_tables"),
        ("run_query on pg-prod", "pg-prod__run_query"),
    ],
)
def test_of_tools_that_do_the_same_the_one_of_the_named_server_is_first(task: str, first: str) -> None:
    assert ranked(DATABASES, task)[0] == first


def test_a_server_that_is_told_from_its_like_comes_before_others_whose_words_fit_better() -> None:
    servers = {**DATABASES, "shop": ["run_sql_query"]}
    assert ranked(servers, "run a sql query on the database")[0] == "shop__run_sql_query"
    assert ranked(servers, "run a sql query on the prod database")[0] == "pg-prod__run_query"


def test_each_line_of_a_task_names_its_own_server() -> None:
    found = ranked(DATABASES, "run a query on dev\nlist the tables on prod")
    assert set(found[:2]) == {"pg-prod__list_tables", "pg-dev__run_query"}


@pytest.mark.parametrize(
    ("task", "first"),
    [
        ("which process uses the most memory", "system__list_processes_by_memory_use"),
        ("what is the weather like this time", "weather__get_weather"),
        ("send the log by mail", "mail__send_mail"),
    ],
)
def test_a_common_word_that_is_also_the_name_of_a_server_decides_nothing(task: str, first: str) -> None:
    servers = {
        "memory": ["read_graph", "add_fact"], "time": ["current_time"], "mail": ["send_mail"], "git": ["show_log"],
        "system": ["list_processes_by_memory_use"], "weather": ["get_weather"],
    }  # fmt: skip
    assert ranked(servers, task)[0] == first

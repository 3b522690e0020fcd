"""Which tool does what a command does: the rules, by small catalogs."""

from __future__ import annotations

import pytest

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query
from foretool.retrieval.shell_commands import find_served, search_words
from foretool.retrieval.shell_table import PROGRAMS, is_reported, subcommands
from foretool.storage.records import Tool, ToolId


def served(command: str, *tools: str, server: str = "github", says: str = "") -> str:
    """The name of the tool of a server that does what a command does."""
    definitions = [f'{{"name": "{name}", "description": "{says}", "inputSchema": {{}}}}' for name in tools]
    held = [
        Tool(ToolId(f"{server}__{name}"), server, name, definition.encode(), name)
        for name, definition in zip(tools, definitions, strict=True)
    ]
    shape = tuple(command.split())
    assert is_reported(shape)
    ranking = Pipeline(Corpus(held)).rank(Query((search_words(shape),)), limit=20)
    by_id = {tool.id: tool for tool in held}
    found = find_served(shape, ranking, by_id.get, lambda name: ())
    return found.name if found is not None else ""


@pytest.mark.parametrize(
    ("command", "tools", "found"),
    [
        ("gh pr list", ["get_pull_request", "list_pull_requests", "create_pull_request"], "list_pull_requests"),
        ("gh pr list", ["listPullRequests"], "listPullRequests"),
        ("gh pr list", ["create_pull_request", "list_issues", "merge_pull_request"], ""),
        ("gh pr view", ["get_pull_request_files", "get_pull_request"], "get_pull_request"),
        ("gh issue list", ["get_issue"], ""),
        ("gh issue list", ["get_issues"], "get_issues"),
        ("gh pr review", ["get_pull_request_reviews"], ""),
        ("gh search code", ["search_issues", "search_code"], "search_code"),
        ("gh release list", ["list_commits", "list_branches"], ""),
    ],
)
def test_verb_and_noun_have_to_be_those_of_the_command(command: str, tools: list[str], found: str) -> None:
    assert served(command, *tools) == found


def test_the_server_has_to_be_for_what_the_program_is_for() -> None:
    assert served("gh pr list", "list_pull_requests", server="work") == ""
    assert served("gh pr list", "list_pull_requests", server="work", says="List pull requests on GitHub") != ""
    assert served("git push", "push_files", server="github", says="Push files to a Git repository") == ""
    assert served("psql", "query", server="mysql") == "" and served("psql", "query", server="postgres") == "query"
    assert served("docker images", "build_image", server="docker", says="Builds images with Docker") == ""
    assert served("docker ps", "list_containers", server="docker") == "list_containers"
    assert served("docker ps", "list_projects", server="hosting", says="Lists Docker containers") == ""
    assert served("curl", "fetch", server="fetch") == "fetch" and served("curl", "navigate", server="browser") == ""


def test_every_command_of_the_table_can_be_searched() -> None:
    shapes = [(program, *rest) for program in PROGRAMS for rest in subcommands(program)]
    assert len(shapes) == len(set(shapes)) > 200
    assert all(is_reported(shape) and search_words(shape).strip() for shape in shapes)

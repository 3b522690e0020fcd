"""What leaves the hook of a command: programs and subcommands of a table, and nothing that was typed besides."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from requirements import requirement

from foretool.retrieval.shell_table import PROGRAMS, is_reported
from foretool.server.hints.shell_shape import MOST_SHAPES, read_event, read_shapes

PR_LIST = ("gh", "pr", "list")
PIECES = [*PROGRAMS, *"'\"`$()<>|&;\\#-\n ", "list", "pr", "x=1"]


@requirement("trust:shell")
@pytest.mark.parametrize(
    "command",
    [
        "gh pr list --state open --json title | head",
        "cd /home/me/secret-plans && gh pr list",
        "GH_TOKEN=ghp_hunter2 GH_HOST=x gh pr list -R acme/hunter2",
        "sudo -u root /usr/local/bin/gh pr list",
        "env -i A=1 timeout 5 gh pr list",
        "bash -lc 'gh pr list --search \"a; b\"'",
        "if true; then gh pr list; fi",
        "echo $(gh pr list)",
        'echo "now: `gh pr list`"',
        "cat <<'END' | tee notes\nkubectl get pods\nEND\ngh pr list # kubectl get pods",
        "for x in kubectl get; do gh pr list; done",
        "gh -R acme/tool pr list",
        "gh pr \\\n  list",
        "diff <(gh pr list) old.txt",
        "gh pr list > out.txt 2>&1 &",
        "while sleep 1; do gh pr list; done",
    ],
)
def test_a_command_is_found_in_whatever_stands_around_it(command: str) -> None:
    assert read_shapes(command) == [PR_LIST]


@requirement("trust:shell")
@pytest.mark.parametrize(
    "command",
    [
        "echo 'gh pr list'", "grep -rn 'git log' .", "ssh host 'gh pr list'", "which gh", "command -v gh",
        "gh pr list --help", "gh --version", "gh auth login", "./gh pr list", "tools/gh pr list", "alias g='gh pr'",
        "ls -la", "cat notes", "gh", "gh pr", "git", "mygit status", "gh pr hunter2", "'unclosed gh pr list",
        "curl http://localhost:8080/health", "curl -d @x https://example.com", "curl https://example.com/i.sh | sh",
        "curl -o x https://example.com/x", "curl $URL", "curl https://10.0.0.1/x", "wget https://example.com/x.zip",
        "curl -H 'Authorization: Bearer hunter2' https://example.com", "docker exec api gh pr list",
    ],
)  # fmt: skip
def test_what_no_tool_may_serve_is_not_reported(command: str) -> None:
    assert [each for each in read_shapes(command) if each != ("docker", "exec")] == []


def test_several_commands_are_reported_once_each_and_no_more_than_a_few() -> None:
    both = "git status && git status; kubectl get pods || helm list"
    assert read_shapes(both) == [("git", "status"), ("kubectl", "get"), ("helm", "list")]
    verbs = ["status", "log", "diff", "show", "add", "commit", "reset", "branch", "checkout", "merge", "push", "pull"]
    assert len(read_shapes("; ".join(f"git {verb}" for verb in verbs))) == MOST_SHAPES
    assert read_shapes("x" * 30_000 + "; gh pr list") == []


@requirement("trust:shell")
@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES)).map(" ".join))
def test_whatever_is_typed_only_words_of_the_table_come_out(command: str) -> None:
    assert all(map(is_reported, read_shapes(command)))


@pytest.mark.parametrize(
    "event",
    [
        {"tool_name": "Bash", "tool_input": {"command": "gh pr list"}, "tool_response": {"stdout": "kubectl get x"}},
        {"tool_name": "run_shell_command", "tool_input": {"command": "gh pr list", "description": "git log"}},
        {"toolName": "bash", "toolArgs": json.dumps({"command": "gh pr list"}), "toolResult": {}},
        {"hook_event_name": "afterShellExecution", "command": "gh pr list", "output": "", "duration": 12},
        {"hook_event_name": "PostToolUse", "tool_name": "run_in_terminal", "tool_input": {"command": "gh pr list"}},
        {"tool_name": "local_shell", "tool_input": {"command": ["bash", "-lc", "gh pr list"]}},
        {"tool_name": "Bash", "tool_input": {"command": ["gh", "pr", "list", "; git log"]}},
    ],
)
def test_the_command_is_read_in_the_form_of_each_client(event: dict[str, Any]) -> None:
    assert read_event(event) == [PR_LIST]


@requirement("shell:silent")
@pytest.mark.parametrize(
    "event",
    [
        None, [], "gh pr list", {}, {"tool_name": "Read", "tool_input": {"command": "gh pr list"}},
        {"tool_name": "Bash"}, {"tool_name": "Bash", "tool_input": {"command": 7}},
        {"tool_name": "Bash", "tool_input": ["gh pr list"]}, {"tool_name": "Bash", "tool_input": {"command": [1]}},
        {"tool_name": ["Bash"], "tool_input": {}},
    ],
)  # fmt: skip
def test_another_form_reports_nothing(event: Any) -> None:
    try:
        assert read_event(event) == []
    except TypeError:
        assert isinstance(event["tool_name"], list)  # unhashable; the hook ends silently

"""The prompt hooks of clients: in and out of each format with nothing else touched, in the form that each reads."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_fakes import fill, write_config
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.commands.hint import hook_command
from foretool.server.config import jsonc
from foretool.server.config.loader import load
from foretool.server.hints.shell_shape import read_event
from foretool.server.hints.texts import HEAD
from foretool.server.setup import changes
from foretool.server.setup.changes import FileChange, undo
from foretool.server.setup.client_hooks import (
    HOOKS,
    SHELL_HOOKS,
    ClientHook,
    change,
    has_prompt_hook,
    hook_entry,
    with_hook,
    without_hook,
)
from foretool.storage.opening import open_store

COMMANDS = {client: hook for client, hook in HOOKS.items() if not hook.module}
CLIENTS = pytest.mark.parametrize("hook", COMMANDS.values(), ids=COMMANDS)

EVENTS: dict[str, dict[str, Any]] = {
    "claude-code": {"session_id": "1", "transcript_path": "/t", "hook_event_name": "UserPromptSubmit"},
    "codex": {"session_id": "1", "turn_id": "2", "hook_event_name": "UserPromptSubmit", "permission_mode": "default"},
    "gemini": {"session_id": "1", "timestamp": "2026-11-22T17:00:00.000Z", "hook_event_name": "BeforeAgent"},
    "qwen": {"session_id": "1", "timestamp": "2026-11-22T17:00:00.000Z", "hook_event_name": "UserPromptSubmit"},
    "cursor": {"conversation_id": "1", "hook_event_name": "beforeSubmitPrompt", "cursor_version": "3.20.17"},
    "copilot": {"sessionId": "1", "timestamp": 1795366800000},
    "vscode": {"session_id": "1", "timestamp": "2026-12-01T07:00:00.000Z", "hook_event_name": "UserPromptSubmit"},
}
"""What each client sends beside `prompt` and `cwd`."""
SHELL_COMMANDS = {client: hook for client, hook in SHELL_HOOKS.items() if not hook.module}


def others(hook: ClientHook) -> dict[str, Any]:
    """Settings of the user that have another hook for the same event."""
    entry = {**hook.entry("echo hi"), "name": "mine"}
    members = [{"matcher": "*", "hooks": [entry]}] if hook.is_grouped else [entry]
    return {**dict(hook.top), "theme": "dark", "hooks": {hook.event: members, "SessionEnd": []}}


@CLIENTS
@requirement("hint:install")
def test_the_hook_goes_in_once_and_out_again_and_nothing_else_changes(hook: ClientHook, tmp_path: Path) -> None:
    before = "// mine\n" + json.dumps(others(hook), indent=2)
    typed = hook_command(tmp_path / "mcp.json", "docs", hook.client)
    after = with_hook(hook, before, typed)
    assert with_hook(hook, after, typed) == after
    members = jsonc.loads(after)["hooks"][hook.event]
    assert members == [*others(hook)["hooks"][hook.event], *hook_entry(hook, typed)["hooks"][hook.event]]
    other = with_hook(hook, after, hook_command(tmp_path / "other.json", "", hook.client))
    assert len(jsonc.loads(other)["hooks"][hook.event]) == 2
    assert without_hook(hook, other) == before == without_hook(hook, before)


@CLIENTS
@pytest.mark.parametrize(
    "members",
    [
        "[\n      MINE, // first\n      // the last comes next\n      MINE,\n    ]",
        "[\r\n      MINE\r\n    ]",
        "[MINE]",
        "[ MINE, MINE ]",
    ],
)
@requirement("hint:install")
def test_hooks_of_the_user_keep_their_comments_and_their_layout(
    hook: ClientHook, members: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = '{"command": "./notes-of-foretool hint"}'
    members = members.replace("MINE", f'{{"hooks": [{mine}]}}' if hook.is_grouped else mine)
    before = f'{{\n  "version": 1,\n  "hooks": {{\n    "{hook.event}": {members}, "Stop": [],\n  }}\n}}\n'
    file, config = tmp_path / "settings.json", write_config(tmp_path, profiles={"docs": {}})
    file.write_bytes(before.encode())
    wanted = ["hint", "--client", hook.client, "--settings", str(file), "--config", str(config)]
    assert run([*wanted, "--remove"]) == 0 and "nothing to change" in " ".join(capsys.readouterr().out.split())
    for profile in ("", "docs"):
        assert run([*wanted, "--install", "--profile", profile]) == 0
        text = file.read_bytes().decode()
        assert len(jsonc.loads(text)["hooks"][hook.event]) == members.count("notes-of") + 1
        assert all(line in text for line in members[:-1].rstrip().removesuffix(",").splitlines())
    assert run([*wanted, "--remove"]) == 0 and file.read_bytes() == before.encode()


@CLIENTS
@pytest.mark.parametrize("mine", [{"version": 1}, {"version": 1, "hooks": {}}, {"hooks": {"EVENT": []}}], ids=range(3))
@requirement("hint:install")
def test_what_was_empty_before_stays_where_the_user_has_edited_the_file_since(
    hook: ClientHook, mine: dict[str, Any], tmp_path: Path
) -> None:
    before = json.dumps(mine).replace("EVENT", hook.event)
    file, config = tmp_path / "settings.json", write_config(tmp_path)
    file.write_text(before)
    wanted = ["hint", "--client", hook.client, "--settings", str(file), "--config", str(config)]
    assert run([*wanted, "--install"]) == run([*wanted, "--install", "--shell"]) == 0
    file.write_text("// edited\n" + file.read_text())
    assert run([*wanted, "--remove"]) == run([*wanted, "--remove", "--shell"]) == 0
    left = jsonc.loads(file.read_text())
    # A member that the client needs beside hooks stays only where there was nothing but hooks.
    assert {**dict(hook.top), **left} == {**dict(hook.top), **json.loads(before)}
    assert "version" in left or "version" not in mine


@pytest.mark.parametrize("text", ['{"hooks": {}}', '{"version": 1, "hooks": {"beforeSubmitPrompt": []}}'])
def test_what_holds_no_hook_of_ours_is_no_prompt_hook(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".cursor/hooks.json"
    file.parent.mkdir()
    file.write_text(text)
    assert not has_prompt_hook() and without_hook(HOOKS["cursor"], text) == text
    file.write_text(with_hook(HOOKS["cursor"], text, "/bin/foretool hint --client cursor"))
    assert has_prompt_hook()


@CLIENTS
@requirement("hint:install")
def test_a_missing_file_is_made_for_its_owner_alone_and_left_empty(hook: ClientHook, tmp_path: Path) -> None:
    file = tmp_path / "new" / "settings.json"
    typed = hook_command(tmp_path / "mcp.json", "", hook.client)
    made = change(hook, file, typed)
    assert made is not None and change(hook, file, "") is None
    changes.write_changes([made], tmp_path / "backups")
    assert json.loads(file.read_text()) == hook_entry(hook, typed)
    assert file.stat().st_mode & 0o777 == 0o600
    assert change(hook, file, typed) is None
    assert json.loads(without_hook(hook, file.read_text())) == {}
    assert undo(tmp_path / "backups").restored == [file] and not file.exists()


def test_a_change_that_is_planned_anyway_takes_the_hook_along(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text("{}")
    planned = FileChange(file, b"{}", b'{"mcpServers": {"foretool": {}}}', "gets foretool")
    found = change(HOOKS["gemini"], file, "foretool hint", planned)
    assert found is not None and found.before == b"{}" and found.whole_why.startswith("gets foretool, and runs")
    assert set(json.loads(found.after)) == {"mcpServers", "hooks"}


@CLIENTS
@requirement("hint:install")
def test_what_is_installed_answers_in_the_form_that_the_client_reads(
    hook: ClientHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, file = write_config(tmp_path), tmp_path / "settings.json"
    fill(config).close()
    wanted = ["hint", "--install", "--client", hook.client, "--settings", str(file), "--config", str(config)]
    assert run(wanted) == 0
    (member,) = json.loads(file.read_text())["hooks"][hook.event]
    entry = member["hooks"][0] if hook.is_grouped else member
    event = {**EVENTS[hook.client], "cwd": str(tmp_path), "prompt": "weather forecast for a city"}
    env = {**os.environ, "FORETOOL_HINT_MS": "20000"}  # the machine of a test may be busy
    done = subprocess.run(
        entry.get("command") or entry["bash"], shell=True, input=json.dumps(event), capture_output=True, text=True,
        timeout=30, check=True, env=env,
    )  # fmt: skip
    said = done.stdout
    if hook.client == "copilot":
        said = json.loads(said)["additionalContext"]
    elif hook.client == "cursor":
        answer = json.loads(said)
        assert answer["continue"] is True
        said = answer["additional_context"]
    elif hook.client != "claude-code":
        answer = json.loads(said)["hookSpecificOutput"]
        assert answer["hookEventName"] == event.get("hook_event_name", hook.event)
        said = answer["additionalContext"]
    assert said.startswith(HEAD) and "sky__forecast" in said


@pytest.mark.parametrize(
    ("client", "other"),
    [
        ("copilot", "vscode"),
        ("vscode", "copilot"),
        ("claude-code", "cursor"),
        ("claude-code", "vscode"),
        ("cursor", "cursor"),
    ],
)
@requirement("hint:install")
def test_a_hook_says_nothing_to_another_client_that_runs_it(
    client: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copilot CLI and VS Code read one folder of hooks, so each runs those of both; the latter and Cursor may run
    Claude's."""
    config = write_config(tmp_path)
    monkeypatch.setenv("FORETOOL_HINT_MS", "20000")
    with fill(config) as store:
        for asking, answers in {client: True, other: client == other}.items():
            event = {**EVENTS[asking], "cwd": str(tmp_path), "prompt": "weather forecast for a city"}
            typed = hook_command(config, "", client)
            done = subprocess.run(
                shlex.split(typed), input=json.dumps(event), capture_output=True, text=True, timeout=30, check=True
            )
            assert ("sky__forecast" in done.stdout) is answers and bool(done.stdout) is answers
        (prompt,) = store.tasks.prompts()
    called = {"vscode": "Visual Studio Code - Insiders", "cursor": "cursor-vscode", "copilot": "copilot-cli"}
    assert prompt.may_be_of("", called.get(client, client)) and not prompt.may_be_of("", "another")


@requirement("hint:install")
def test_a_dry_run_shows_the_difference_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hooks.json"
    wanted = ["hint", "--client", "codex", "--settings", str(file), "--config", str(write_config(tmp_path))]
    assert run([*wanted, "--install", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert '+    "UserPromptSubmit": [' in shown and not file.exists()
    assert "hooks.json would change:" in shown.replace("\n", "") and "Nothing was written." in shown
    assert run([*wanted, "--install"]) == 0
    out = capsys.readouterr().out
    assert f"\n  {hook_command(tmp_path / 'mcp.json', '', 'codex')}\nTo remove it: " in out
    said = " ".join(out.split())
    assert "type /hooks" in said and "foretool hint --remove --client codex" in said
    assert run([*wanted, "--remove"]) == 0
    assert run([*wanted, "--remove"]) == 0
    assert "nothing to change" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "text", ["{not json", "[]", '{"hooks": {"BeforeAgent": {}}}', '{"hooks": []}', '{"a": "\udce9"}']
)
def test_settings_that_cannot_be_read_are_left_alone(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    data = text.encode(errors="surrogateescape")
    file.write_bytes(data)
    wanted = ["hint", "--install", "--client", "gemini", "--settings", str(file)]
    assert run([*wanted, "--config", str(write_config(tmp_path))]) == 1
    assert file.read_bytes() == data
    assert capsys.readouterr().err.count("\n") == 1


@requirement("hint:install")
def test_a_hook_that_could_never_answer_is_refused_or_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hooks.json"
    wanted = ["hint", "--install", "--client", "cursor", "--settings", str(file)]
    config = write_config(tmp_path, profiles={"docs": {}})
    assert run([*wanted, "--profile", "dosc", "--config", str(config)]) == 2 and not file.exists()
    assert "no profile 'dosc'; it has: docs" in " ".join(capsys.readouterr().err.split())
    config.unlink()
    assert run([*wanted, "--config", str(config)]) == 0 and file.exists()
    assert "no such file yet; foretool init makes it" in " ".join(capsys.readouterr().err.split())


OPENCODE = HOOKS["opencode"]


def converse(file: Path, parts: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Let the module in a file see a message as opencode would; return the parts of the message."""
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    told = json.dumps([{"sessionID": "ses_1"}, {"message": {"id": "msg_1"}, "parts": parts}])
    script = (
        f"const {{ foretool }} = await import({json.dumps(file.as_uri())});"
        f"const hooks = await foretool({{ directory: {json.dumps(str(folder))} }});"
        f"const [input, output] = {told};"
        'await hooks["chat.message"](input, output);'
        "console.log(JSON.stringify(output.parts))"
    )
    env = {**os.environ, "FORETOOL_HINT_MS": "20000"}  # the machine of a test may be busy
    done = subprocess.run(
        [node, "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60, check=True, env=env
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def text_part(text: str, **more: Any) -> dict[str, Any]:
    return {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": "text", "text": text, **more}


@requirement("hint:install")
def test_the_module_of_opencode_adds_what_the_hook_says_behind_the_prompt(tmp_path: Path) -> None:
    config, file = write_config(tmp_path), tmp_path / 'a "folder" of plugins' / "foretool.mjs"
    fill(config).close()
    file.parent.mkdir()
    wanted = ["hint", "--install", "--client", "opencode", "--settings", str(file), "--config", str(config)]
    assert run(wanted) == 0
    # The command waits two seconds at most, which a busy machine may need.
    file.write_text(file.read_text().replace("2000)", "20000)"))
    parts = [text_part("weather forecast"), text_part("for a city"), text_part("read by nobody", synthetic=True)]
    *same, added = converse(file, parts, tmp_path)
    assert same == parts
    assert added["text"].startswith(HEAD) and "sky__forecast" in added["text"]
    assert {**added, "text": ""} == {**text_part(""), "id": "prt_1z", "synthetic": True}
    with open_store(load(config).storage) as store:
        (prompt,) = store.tasks.prompts()
        assert (prompt.text, prompt.session, prompt.cwd) == ("weather forecast\nfor a city", "ses_1", str(tmp_path))
    picture = [{**text_part(""), "type": "file"}]
    assert converse(file, picture, tmp_path) == picture


@requirement("hint:install")
def test_a_hook_that_cannot_start_or_never_ends_holds_up_no_prompt(tmp_path: Path) -> None:
    parts = [text_part("weather forecast for a city")]
    for number, typed in enumerate(("/no/such/program hint", "sleep 600")):
        file = tmp_path / f"{number}.mjs"
        file.write_text(with_hook(OPENCODE, "", typed).replace("2000)", "100)"))
        assert converse(file, parts, tmp_path) == parts


@requirement("hint:install")
def test_a_module_goes_in_and_out_and_another_plugin_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, config = tmp_path / "foretool.js", write_config(tmp_path, profiles={"docs": {}})
    wanted = ["hint", "--client", "opencode", "--settings", str(file), "--config", str(config)]
    assert run([*wanted, "--install"]) == 0
    assert "restart it" in " ".join(capsys.readouterr().out.split())
    first = file.read_text()
    assert run([*wanted, "--install", "--profile", "docs"]) == 0
    assert file.read_text() != first
    assert run([*wanted, "--remove"]) == 0
    assert not file.exists()
    file.write_text("export const mine = 1\n")
    for action in ("--install", "--remove"):
        run([*wanted, action])
        assert file.read_text() == "export const mine = 1\n"
    assert "give that one another name" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("path", ['/tmp/"; process.exit(1); "/mcp.json', "/tmp/\n${1}`x`/mcp.json", "/tmp/\\/mcp.json"])
def test_no_path_can_become_code_of_a_module(path: str, tmp_path: Path) -> None:
    words = ["echo", "hint", "--config", path]
    file = tmp_path / "foretool.mjs"
    file.write_text(with_hook(OPENCODE, "", shlex.join(words)))
    added = converse(file, [text_part("a prompt")], tmp_path)[-1]
    assert added["text"] == " ".join(words[1:])


def test_every_client_with_a_prompt_hook_has_one_behind_its_shell() -> None:
    assert list(SHELL_HOOKS) == list(HOOKS)


@pytest.mark.parametrize("hook", SHELL_COMMANDS.values(), ids=SHELL_COMMANDS)
@requirement("hint:install")
def test_both_hooks_go_in_and_out_in_any_order_and_nothing_else_changes(hook: ClientHook, tmp_path: Path) -> None:
    mine = {"matcher": "Edit", "hooks": [hook.entry("echo hi")]} if hook.is_grouped else hook.entry("echo hi")
    before = "// mine\n" + json.dumps({**dict(hook.top), "theme": "dark", "hooks": {hook.event: [mine]}}, indent=2)
    prompt = HOOKS[hook.client]
    typed = hook_command(tmp_path / "mcp.json", "", hook.client)
    shell_typed = hook_command(tmp_path / "mcp.json", "", hook.client, is_shell=True)
    only = with_hook(hook, before, shell_typed)
    both = with_hook(prompt, only, typed)
    assert with_hook(hook, both, shell_typed) == both
    member = jsonc.loads(both)["hooks"][hook.event][1]
    entry = member["hooks"][0] if hook.is_grouped else member
    assert (entry.get("command") or entry["bash"]) == shell_typed and member.get("matcher", "") == hook.matcher
    assert without_hook(prompt, both) == only and without_hook(hook, only) == before
    assert without_hook(prompt, without_hook(hook, both)) == before
    assert without_hook(prompt, only) == only, "removing one hook must leave the other"


@requirement("hint:install")
def test_init_adds_it_only_where_it_is_asked_for_and_undo_takes_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".gemini" / "settings.json"
    file.parent.mkdir()
    before = json.dumps({"mcpServers": {"calc": {"command": "true"}}})
    file.write_text(before)
    wanted = ["init", "--client", "gemini", "--yes", "--no-start", "--config", str(tmp_path / "own" / "mcp.json")]
    assert run([*wanted, "--hook"]) == 0
    assert list(json.loads(file.read_text())["hooks"]) == ["BeforeAgent"]
    assert run(["init", "--undo", *wanted[-2:]]) == 0 and file.read_text() == before
    assert run([*wanted, "--shell-hook"]) == 0
    (member,) = json.loads(file.read_text())["hooks"]["AfterTool"]
    assert member["matcher"] == "run_shell_command" and " --shell " in member["hooks"][0]["command"]
    assert run(["init", "--undo", *wanted[-2:]]) == 0 and file.read_text() == before


@requirement("hint:install")
def test_the_command_that_installs_it_says_how_to_remove_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings.json"
    wanted = ["hint", "--shell", "--settings", str(file), "--config", str(write_config(tmp_path))]
    assert run([*wanted, "--install"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "after every command of its shell" in said and "foretool hint --remove --shell" in said
    (member,) = json.loads(file.read_text())["hooks"]["PostToolUse"]
    assert member["matcher"] == "Bash" and member["hooks"][0]["async"] is True
    assert run([*wanted, "--remove"]) == 0 and not file.exists()


def test_the_module_of_opencode_reports_commands_of_its_shell_alone(tmp_path: Path) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    said, module = tmp_path / "said.json", tmp_path / "foretool-shell.js"
    module.write_text(with_hook(SHELL_HOOKS["opencode"], "", f"sh -c 'cat >> {said}'"))
    script = (
        f"const {{ foretoolShell }} = await import({json.dumps(module.as_uri())});"
        'const hooks = await foretoolShell({ directory: "/w" });'
        'for (const [tool, args] of [["edit", {}], ["bash", undefined], ["bash", { command: "gh pr list" }]])'
        '  await hooks["tool.execute.after"]({ tool, args, sessionID: "s" }, {});'
    )
    subprocess.run([node, "--input-type=module", "-e", script], check=True, timeout=60, env={**os.environ})
    events = [json.loads(each) for each in said.read_text().replace("}{", "}\n{").splitlines()]
    assert sorted(map(read_event, events)) == [[], [("gh", "pr", "list")]]
    assert without_hook(SHELL_HOOKS["opencode"], module.read_text()) == ""

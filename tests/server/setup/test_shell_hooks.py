"""The hooks behind a client's shell: in and out of each file with everything else as it was, beside the prompt hook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command_fakes import write_config
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.commands.hint import hook_command
from foretool.server.config import jsonc
from foretool.server.hints.shell_shape import read_event
from foretool.server.setup.prompt_hooks import HOOKS, ClientHook, with_hook, without_hook
from foretool.server.setup.shell_hooks import SHELL_HOOKS

COMMANDS = {client: hook for client, hook in SHELL_HOOKS.items() if not hook.module}


def test_every_client_with_a_prompt_hook_has_one_behind_its_shell() -> None:
    assert list(SHELL_HOOKS) == list(HOOKS)


@pytest.mark.parametrize("hook", COMMANDS.values(), ids=COMMANDS)
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
    assert run([*wanted, "--remove"]) == 0 and json.loads(file.read_text()) == {}


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

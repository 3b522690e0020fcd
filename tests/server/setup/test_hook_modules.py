"""Prompt hooks that are modules: what they add to a prompt, and what they leave alone."""

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
from foretool.server.config.loader import load
from foretool.server.hints.texts import HEAD
from foretool.server.setup.prompt_hooks import HOOKS, with_hook
from foretool.storage.opening import open_store

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
    file, config = tmp_path / "foretool.js", write_config(tmp_path)
    wanted = ["hint", "--client", "opencode", "--settings", str(file), "--config", str(config)]
    assert run([*wanted, "--install"]) == 0
    assert "restart it" in " ".join(capsys.readouterr().out.split())
    first = file.read_text()
    assert run([*wanted, "--install", "--profile", "docs"]) == 0
    assert file.read_text() != first
    assert run([*wanted, "--remove"]) == 0
    assert file.read_text() == ""
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

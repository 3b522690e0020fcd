"""The prompt hook: what it keeps, what it says, and that nothing makes it loud or late."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_fakes import definition, fill, remember, write_config
from fakes import FakeUpstream, proxy_over, tool
from hypothesis import given
from hypothesis import strategies as st
from requirements import requirement
from served import Served, wait_until
from stored_records import connection_of, saved_upstreams

from foretool.retrieval.tokens import count_tokens
from foretool.server import hint
from foretool.server.commands.search import open_search
from foretool.server.config import loader as configs
from foretool.server.hint import HintOptions, HookPrompt, plain_hint
from foretool.server.hints.texts import HEAD, LISTED
from foretool.storage.opening import open_store
from foretool.storage.records import Prompt, Tool, ToolId
from foretool.storage.steps import finish

EVENT = {
    "session_id": "b7e6f1d4-0c5e-4a53-9d7b-2f0f6a5c1e88",
    "transcript_path": "/home/me/.claude/projects/-home-me-work/b7e6f1d4.jsonl",
    "cwd": "/home/me/work",
    "permission_mode": "default",
    "hook_event_name": "UserPromptSubmit",
    "prompt": "what will the weather be in Paris, any forecast for the city?",
}
"""As Claude Code sends it."""


def told(**more: Any) -> bytes:
    return json.dumps({**EVENT, **more}).encode()


def run(path: Path, stdin: bytes, **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "foretool", "hint", "--config", str(path)]
    env = {**os.environ, "FORETOOL_HINT_MS": "20000", **environ}  # the machine of a test may be busy
    return subprocess.run(command, input=stdin, capture_output=True, timeout=30, check=False, env=env)


@requirement("hint:says")
def test_a_prompt_is_kept_and_its_likely_tools_are_named(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        said = hint.answer_prompt(told(), HintOptions(path))
        (prompt,) = store.tasks.prompts()
    *lines, example = said.splitlines()
    assert lines == [HEAD, '- sky__forecast(text?: string) (write): "Forecast of the weather for a city."']
    assert example == 'For example: call_tool_write {"name": "sky__forecast", "arguments": {"text": ...}}'
    assert (prompt.text, prompt.session, prompt.cwd) == (EVENT["prompt"], EVENT["session_id"], EVENT["cwd"])


GIT = {
    "log": "Shows the commit logs.", "commit": "Records changes to the repository.", "status": "Shows the state.",
}  # fmt: skip
FILES = {
    "read_text_file": "Reads the complete contents of a file.", "move_file": "Moves or renames files.",
    "list_directory": "Lists the contents of a directory.",
}  # fmt: skip
CHAT = {"list_channels": "Lists the channels of the workspace.", "post_message": "Posts a message to a channel."}


@pytest.mark.slow
@requirement("hint:meaning")
def test_where_no_proxy_runs_the_encoder_ranks_too_so_that_a_prompt_about_code_has_no_hint(tmp_path: Path) -> None:
    """As in VS Code, which starts a server that it knows only when the model calls a tool."""
    path = write_config(tmp_path, {each: {"command": each} for each in ("git", "files", "chat")}, encoder="auto")
    config = configs.load(path)
    with open_store(config.storage) as store:
        for name, tools in (("git", GIT), ("files", FILES), ("chat", CHAT)):
            remember(config, store, name, tools)
    with open_search(path, ""):
        pass  # keeps the vectors, as a proxy or `init` does
    needs_a_tool = run(path, told(prompt="What did my colleagues change in the project lately?"))
    needs_none = run(path, told(prompt="Fix the off-by-one error in the pagination function"))
    assert needs_a_tool.stdout.decode().splitlines()[1].startswith("- git__log(")
    assert needs_none.stdout == b""


@requirement("hint:talk")
@pytest.mark.parametrize("prompt", ["yes, go on", "What do you mean?", "weather"])
def test_a_prompt_that_names_no_task_is_told_of_no_tool_and_does_not_end_the_task_before_it(
    tmp_path: Path, prompt: str
) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        done = run(path, told(prompt=prompt))
        kept = [each.text for each in store.tasks.prompts()]
    is_task = prompt == "weather"
    assert (done.returncode, b"sky__forecast" in done.stdout, kept) == (0, is_task, [prompt] if is_task else [])
    assert is_task or done.stdout == b""


@requirement("trust:policy:deny")
def test_a_denied_tool_is_not_named(tmp_path: Path) -> None:
    with fill(write_config(tmp_path)):
        sky: dict[str, Any] = {"command": "sky"}
        for rule, is_named in (("moon", True), ("forecast", False), ("@destructive", False)):
            path = write_config(tmp_path, {"calc": {"command": "calc"}, "sky": {**sky, "deny": [rule]}})
            assert ("sky__forecast" in hint.answer_prompt(told(), HintOptions(path))) is is_named


@requirement("hint:working-set")
def test_the_prompt_counts_as_a_task_for_the_working_set(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        hint.answer_prompt(told(prompt="phase of the moon"), HintOptions(path))
        assert store.tasks.latest(9) == ["phase of the moon", "weather in Paris"]


@requirement("hint:silent")
@pytest.mark.parametrize(
    "stdin",
    [
        b"",
        b"no json",
        b"[]",
        told(prompt=None),
        told(prompt="  "),
        told(prompt=7),
        b"\xff\xfe",
        told(prompt="completely unrelated gibberish"),
        told(prompt="\ud800"),
        told(session_id=None, cwd=[1], prompt="hm"),
    ],
    ids=range(10),
)
def test_nothing_is_said_and_the_status_is_0_whatever_comes(tmp_path: Path, stdin: bytes) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    done = run(path, stdin)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@requirement("hint:silent")
def test_a_missing_config_and_a_broken_store_are_passed_over(tmp_path: Path) -> None:
    done = run(tmp_path / "none.json", told())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    path = write_config(tmp_path)
    (tmp_path / "foretool.sqlite3").write_bytes(b"no database" * 100)
    done = run(path, told(), FORETOOL_STORAGE=str(tmp_path / "foretool.sqlite3"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@requirement("hint:silent")
@pytest.mark.parametrize("wrong", [["--client", "nosuch"], ["--nosuch"], ["--profile"]], ids=" ".join)
def test_a_mistyped_hook_is_told_of_and_stops_no_prompt(wrong: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "foretool", "hint", *wrong], input=told(), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"") and done.stderr.startswith(b"foretool: ")
    installed = subprocess.run(
        [sys.executable, "-m", "foretool", "hint", "--install", *wrong], capture_output=True, check=False
    )
    assert installed.returncode == 2


@requirement("hint:silent")
def test_a_locked_store_costs_the_record_and_not_the_hint(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        connection_of(store).execute("BEGIN IMMEDIATE")
        assert hint.answer_prompt(told(), HintOptions(path)).startswith(HEAD)
        connection_of(store).execute("ROLLBACK")
        assert store.tasks.prompts() == []


@requirement("hint:deadline")
def test_a_client_that_does_not_end_its_input_is_not_waited_for(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    command = [sys.executable, "-m", "foretool", "hint", "--config", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(30) == 0
        assert process.stdout is not None and process.stdout.read() == b""


@requirement("hint:deadline")
def test_the_deadline_counts_from_the_start_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hint, "age_s", lambda: 0.03)
    assert hint.left_s() == pytest.approx(1.27)
    monkeypatch.setenv("FORETOOL_HINT_MS", "20")
    assert hint.left_s() == 0.001


@requirement("hint:deadline")
def test_a_prompt_whose_hint_comes_too_late_is_stored_all_the_same(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        done = run(path, told(), FORETOOL_HINT_MS="1")  # over before Python has started
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert wait_until(lambda: len(store.tasks.prompts()) == 1)
        assert [each.text for each in store.tasks.prompts()] == [EVENT["prompt"]]
        assert not [each for each in store.sessions.exposures(EVENT["session_id"]) if each.reason == "prompt"]


@requirement("hint:silent")
def test_no_child_goes_on_with_a_storage_file_that_is_open(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    lines = (
        "import os, sys, time", "from foretool.server import hint",
        "os.fork = lambda: os.write(1, b'forked')",
        "hint._name_tools = lambda *rest: time.sleep(20)",
        f"sys.exit(hint.main(hint.HintOptions({str(path)!r})))",
    )  # fmt: skip
    with fill(path) as store:
        env = {**os.environ, "FORETOOL_SOCKETS": "off", "FORETOOL_HINT_MS": "4000"}
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(lines)],
            input=told(),
            capture_output=True,
            timeout=15,
            check=False,
            env=env,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert [each.text for each in store.tasks.prompts()] == [EVENT["prompt"]]


def test_cursor_says_which_folders_are_open_in_place_of_one() -> None:
    event = {"prompt": "weather in Paris", "conversation_id": "7", "workspace_roots": ["/work/a", "/work/b"]}
    asked = hint.read_prompt(json.dumps(event).encode(), "cursor")
    assert asked is not None and (asked.session, asked.folder) == ("7", "/work/a")
    for roots in ([], None, "/work"):
        asked = hint.read_prompt(json.dumps({**event, "workspace_roots": roots}).encode(), "cursor")
        assert asked is not None and asked.folder == ""


@pytest.mark.parametrize("is_shell", [False, True])
def test_a_proxy_is_asked_under_the_name_that_a_client_has_there(
    is_shell: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window of VS Code is that of "Visual Studio Code"; by another name the hook would be nobody's."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(hint, "_ask", lambda service, question, *rest: asked.append(question))
    event = {"hook_event_name": "PostToolUse", "tool_name": "run_in_terminal", "tool_input": {"command": "gh pr list"}}
    options = HintOptions(tmp_path / "mcp.json", client="vscode", is_shell=is_shell)
    if is_shell:
        hint.report_commands(json.dumps(event).encode(), options)
    else:
        hint.ask_proxy(HookPrompt("weather in Paris", "", "", 0.0), options, 1.0)
    (question,) = asked
    assert question["client"] in "Visual Studio Code - Insiders".lower()


@requirement("hint:record")
def test_a_late_prompt_is_not_stored_where_nothing_may_be(tmp_path: Path) -> None:
    path = write_config(tmp_path, record="off")
    with fill(path) as store:
        asked = hint.read_prompt(told(), "claude-code")
        assert asked is not None
        hint.keep_prompt(asked, HintOptions(path))
        assert store.tasks.prompts() == []


def test_the_age_of_a_process_includes_what_it_waited() -> None:
    code = "import time; time.sleep(0.2); from foretool.server.hint import age_s; print(age_s(), time.process_time())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    age, used = map(float, done.stdout.split())
    assert (0.2 <= age < 5) if sys.platform == "linux" else age <= used


def test_where_the_system_says_nothing_processor_time_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "process_time", lambda: 0.03)
    monkeypatch.setattr(os, "sysconf", lambda name: 1)  # a clock that says nonsense
    assert hint.age_s() == 0.03
    monkeypatch.setattr(hint, "STATUS", "/nowhere")
    assert hint.age_s() == 0.03


def test_the_command_line_of_a_hook_is_read_without_click() -> None:
    for rest, options in (
        ([], HintOptions()),
        (["--config", "a.json"], HintOptions("a.json")),
        (["--config=a.json", "--profile", "docs"], HintOptions("a.json", "docs")),
        (["--shell", "--client", "codex"], HintOptions(None, "", "codex", True)),
    ):
        assert plain_hint(["hint", *rest]) == options
    for rest in (["--help"], ["--install"], ["--config"], ["a.json"]):
        assert plain_hint(["hint", *rest]) is None


@requirement("hint:tokens")
def test_what_is_said_has_at_most_300_tokens(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        record = next(each for each in saved_upstreams(store) if each.name == "sky")
        calc = next(each for each in saved_upstreams(store) if each.name == "calc")
        others = [
            Tool(ToolId(f"calc__{n}"), "calc", f"f{n}", definition(f"f{n}", f"Function {n}"), f"h{n}")
            for n in range(60)
        ]
        finish(store.catalog.save_upstream(calc, others))
        long = "Weather forecast of a city for the days to come, hour by hour, with wind, rain, sun and their maps"
        names = [f"forecast_of_the_weather_in_city_{number}" for number in range(5)]
        tools = [
            Tool(ToolId(f"sky__{name}"), "sky", name, definition(name, long), f"hash-{name}", 40) for name in names
        ]
        finish(store.catalog.save_upstream(record, tools))
    said = hint.answer_prompt(
        told(prompt="which weather forecast of a city in the days to come has wind, rain, sun?"), HintOptions(path)
    )
    (tokens,) = count_tokens([said])
    assert (len(said.splitlines()), tokens <= 300) == (7, True)


@requirement("hint:record")
def test_with_record_off_no_prompt_is_kept(tmp_path: Path) -> None:
    path = write_config(tmp_path, record="off")
    with fill(path) as store:
        assert hint.answer_prompt(told(), HintOptions(path))
        assert store.tasks.prompts() == []


@requirement("hint:record")
def test_secrets_of_the_config_are_not_kept_and_long_prompts_are_cut(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"sky": {"command": "sky", "env": {"SKY_TOKEN": "hunter2-hunter2"}}})
    hint.answer_prompt(told(prompt="my token is hunter2-hunter2 " + "x" * 30_000), HintOptions(path))
    with open_store(configs.load(path).storage) as store:
        (prompt,) = store.tasks.prompts()
    assert "hunter2" not in prompt.text and len(prompt.text) < 20_100


def test_of_a_large_catalog_the_tools_that_share_words_are_ranked() -> None:
    def made(number: int, text: str) -> hint.Head:
        return "s", ToolId(f"s__t{number}"), f"t{number}", definition(f"t{number}", text)

    heads = [made(number, "An issue of no matter") for number in range(150)]
    heads.append(made(150, "Creates an issue"))
    heads.append(("s", ToolId("s__create"), "create", definition("create", "Creates things")))
    found = [tool for _, tool, _, _ in hint._preselect(heads, "create issues", 100)]
    assert len(found) == 100 and {"s__t150", "s__create"} <= set(found)
    assert hint._preselect(heads, "weather", 100) == []
    assert hint._preselect(heads[:60], "weather", 100) == heads[:60]


def test_a_word_that_all_ranked_tools_have_still_says_much_in_a_large_catalog(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        remember(configs.load(path), store, "calc", {f"f{n}": f"Returns column {n} of a table" for n in range(400)})
        remember(configs.load(path), store, "sky", {f"droplet_{n}": f"Create droplets of size {n}" for n in range(90)})
    said = hint.answer_prompt(told(prompt="create a droplet in Frankfurt"), HintOptions(path))
    assert "- sky__droplet_" in said


def test_words_that_mean_nearly_the_same_bring_a_tool_among_those_that_are_ranked() -> None:
    heads: list[hint.Head] = [
        ("s", ToolId(f"s__thing_{number}"), f"thing_{number}", b"Reads a record.") for number in range(300)
    ]
    heads[250] = ("s", ToolId("s__image_crop"), "image_crop", b"Cuts an image.")
    assert [tool for _, tool, _, _ in hint._preselect(heads, "make my photo smaller", 100)] == ["s__image_crop"]
    every: list[hint.Head] = [("s", tool, name, b"Cuts an image.") for _, tool, name, _ in heads]
    assert hint._preselect(every, "make my photo smaller", 100) == [], "a near word that all tools have tells nothing"


@pytest.mark.slow
@given(st.lists(st.binary(max_size=30), min_size=101, max_size=110), st.text(max_size=40))
def test_any_bytes_and_any_words_can_be_looked_through(texts: list[bytes], prompt: str) -> None:
    heads: list[hint.Head] = [("s", ToolId(f"s__t{place}"), f"t{place}", text) for place, text in enumerate(texts)]
    assert len(hint._preselect(heads, prompt, 100)) <= 100
    find = hint._finder(texts)
    for word in prompt.lower().split():
        known = [place for place, text in enumerate(texts) if word.encode("utf-8", "replace") in text.lower()]
        assert find(word) == known


@pytest.mark.anyio
@requirement("hint:working-set")
async def test_a_client_that_nothing_is_known_of_is_shown_the_tools_of_the_last_prompt() -> None:
    tools = [tool("forecast", "Forecast of the weather for a city"), tool("moon", "Phase of the moon")]
    with open_store(":memory:") as store:
        store.tasks.add_prompt(Prompt(1.0, "weather forecast for my city"))
        async with proxy_over(FakeUpstream("sky", tools), store=store) as stage:
            assert await stage.client.list_tools() == [
                "call_tool",
                "call_tool_write",
                "discover_tools",
                "sky__forecast",
            ]


@requirement("hint:asks")
def test_a_running_proxy_is_asked_and_records_the_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETOOL_SOCKETS", str(tmp_path / "run"))
    config = write_config(tmp_path)
    fill(config).close()
    served = Served(config, "--alone", cwd=tmp_path)
    served.initialize()
    served.list_tools()
    done = run(config, told(cwd=str(tmp_path)))
    assert served.leave() == 0
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(LISTED.encode()) and b"sky__forecast" in done.stdout
    assert [each for each in (tmp_path / "run").iterdir() if each.suffix != ".answer"] == []
    with open_store(configs.load(config).storage) as store:
        assert [each.text for each in store.tasks.prompts()] == [EVENT["prompt"]]
        # Only a proxy knows the session.
        (session,) = [each for each in store.sessions.recent() if each.client == "test"]
        (hint_shown,) = [each for each in store.sessions.exposures(session.key) if each.reason == "prompt"]
        assert hint_shown.tools[0] == "sky__forecast"


def test_ranking_by_words_imports_no_event_loop(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    code = (
        "import sys; from foretool.server import hint;"
        "sys.modules.update(dict.fromkeys(('click', 'asyncio', 'numpy')));"  # an import fails
        "print(hint.answer_prompt(sys.stdin.buffer.read(), hint.HintOptions(sys.argv[1])))"
    )
    environ = {**os.environ, "FORETOOL_SOCKETS": "off", "FORETOOL_HINT_MS": "60000"}
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, input=told(), capture_output=True, env=environ, check=True)
    assert b"sky__forecast" in done.stdout


def test_the_way_to_a_proxy_imports_neither_typing_nor_pathlib() -> None:
    code = (
        "import sys;"
        "sys.modules.update(dict.fromkeys(('typing', 'pathlib', 'msgspec', 'click', 'asyncio')));"  # an import fails
        "import foretool.server.hint, foretool.server.local.caller, foretool.server.hints.shell_shape"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)

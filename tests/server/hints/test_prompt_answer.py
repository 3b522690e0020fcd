"""A prompt hook that asks gets the tools that this proxy ranks first, and everything is on record."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeUpstream, Stage, proxy_over, tool
from msgspec.structs import replace
from requirements import requirement
from stored_records import saved_upstreams

from foretool.retrieval.ranking import Nearness, Ranking
from foretool.server.hints import MOST_TEXT
from foretool.server.hints.prompt_answer import read_question
from foretool.server.hints.texts import HEAD, TOOLS
from foretool.server.ledger.story import read_miss_story
from foretool.server.local.server import Hello
from foretool.storage.opening import open_store
from foretool.storage.records import Exposure, Prompt

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

# ruff: noqa: E402

from learned_fakes import START, Counted

from foretool.retrieval.rankers.learned import LearnedModels

pytestmark = pytest.mark.anyio

OPEN, READ = "files__open", "files__read"


def files() -> FakeUpstream:
    need = {"path": {"type": "string"}}
    tools = [tool(name, f"To {name} a document.", need) for name in ("open", "read", "shut")]
    for each in tools:
        each["inputSchema"]["required"] = ["path"]
    tools.append(tool("weather", "The forecast of tomorrow."))
    return FakeUpstream("files", tools=tools)


def ask(stage: Stage, prompt: str, profile: str = "", others: int = 0, **more: Any) -> str:
    """What a hook gets that asks over the local socket."""
    answers: list[dict[str, Any]] = []
    here = str(Path.cwd())
    question = {"prompt": prompt, "at": stage.app.recorder.now(), "session": "chat", "cwd": here, **more}
    stage.app.answering.prompt_answers._answer(Hello(profile, here, {"others": others}), question, answers.append)
    (answer,) = answers
    return str(answer["text"])


@requirement("miss:search")
@pytest.mark.parametrize(
    ("prompts", "credited"),
    [(["yes for Lisbon"], [("discovery", "the forecast")]), (["sums", "now 3"], [("bridge", "")])],
)
async def test_a_call_after_two_prompts_is_not_what_a_search_before_them_was_for(
    prompts: list[str], credited: list[tuple[str, str]]
) -> None:
    async with proxy_over(files(), policy="frozen", list_tokens=0, list_names=False) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.call_tool("discover_tools", {"task": "the forecast"})
        for each in prompts:
            ask(stage, each)
        await stage.client.call_tool("call_tool_write", {"name": "files__weather", "arguments": {}})
        assert [(each.noticed, each.query if each.call else "") for each in stage.misses()] == credited
        assert [bool(each.discovery) for each in stage.calls()] == [len(prompts) == 1]


@requirement("bridge:answer")
async def test_a_tool_that_fails_twice_is_answered_with_what_the_prompt_finds_where_the_hook_had_kept_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foretool.server.hints.prompt_answer.is_doubtful", lambda *given: True)
    upstream = files()
    upstream.results["weather"] = {"content": [{"type": "text", "text": "not signed in"}], "isError": True}
    async with proxy_over(upstream, policy="frozen", list_tokens=0) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()

        async def call(name: str, **arguments: str) -> list[str]:
            given = {"name": f"files__{name}", "arguments": arguments}
            result = await stage.client.call_tool("call_tool_write", given)
            return [block["text"] for block in result["content"]]

        assert ask(stage, "please shut my document") == ""
        assert await call("weather") == ["not signed in"]
        _, advice = await call("weather")
        begins = (
            "files__weather has now failed 2 times in a row; other tools for this task:"
            ' call_tool_write {"name": "files__shut", "arguments": {"path": ...}}, call_tool_write {"name": "files__'
        )
        assert advice.startswith(begins) and advice.endswith("; if none is, describe the task to discover_tools")
        # It is on record, so a call of what it names is no miss; and while none was made, the best one is named again.
        again = 'named for this task, and not called yet: call_tool_write {"name": "files__shut", "arguments": {"path":'
        assert again in (await call("weather"))[1]
        assert await call("shut", path="a") == ["shut"]
        assert "files__shut" not in {miss.tool for miss in stage.misses()}


@requirement("hint:asks")
async def test_learned_models_take_part_and_the_hint_is_an_exposure_of_the_session() -> None:
    async with proxy_over(files(), policy="frozen", list_tokens=0) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        unlearned = ask(stage, "a document please")
        assert "files__read(path: string)" not in "".join(unlearned.splitlines()[:2])  # the words fit three tools
        stage.app.search.install_models(LearnedModels({"dtdr": Counted({START: {READ: 9, OPEN: 1}})}))
        said = ask(stage, "a document please")
        assert said.splitlines()[:2] == [HEAD, '- files__read(path: string) (write): "To read a document."']
        client = stage.app.clients.only_client()
        assert client is not None and client.session is not None
        key = client.session.record.key
        stage.app.recorder.commit()
        hints = [each for each in stage.store.sessions.exposures(key) if each.reason == "prompt"]
        assert [each.tools[0] for each in hints][-1] == READ
        assert isinstance(hints[0], Exposure) and 0 < hints[0].tokens <= 300 and hints[0].policy == "frozen"
        assert READ in client.session.conversations.whole.hinted
        assert [each.text for each in stage.store.tasks.prompts()] == ["a document please"] * 2


@requirement("hint:asks")
async def test_behind_the_best_the_hook_names_nothing_that_the_list_names_already(tmp_path: Path) -> None:
    many = FakeUpstream("files", tools=[tool(f"read{n}", "To read a document.") for n in range(20)])
    with open_store(tmp_path / "foretool.sqlite3") as store:
        async with proxy_over(many, store=store, policy="frozen", list_tokens=330, list_fill=True) as stage:
            await stage.client.initialize()
            await stage.client.list_tools()
            client = stage.app.clients.only_client()
            assert client is not None and client.session is not None and client.session.list.view is not None
            view = client.session.list.view
            named = view.named
            also, _ = ask(stage, "read a document").splitlines()[TOOLS + 1 :]
            found = {f"files__{short}" for short in re.findall(r"(read\d+)\(", also)}
            assert named and found and not found & {*named, *view.shown}
            # A hook of which nobody knows the session goes by the list that was stored.
            assert stage.app.answering.prompt_answers._shown("", None)[1](named[0])
            assert not stage.app.answering.prompt_answers._shown("none", None)[1](named[0])


@requirement("hint:doubt")
async def test_where_it_is_doubtful_that_any_tool_fits_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words alone cannot tell, so without an encoder tools are named."""
    async with proxy_over(files(), policy="frozen", list_tokens=0) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        search = stage.app.search
        by_words = search.rank

        def by_meaning(*given: Any) -> Ranking:
            ranking = by_words(*given)
            near = Nearness("minilm-tools", cosines=(0.3,))
            return replace(ranking, evidence=tuple(replace(line, nearness=near) for line in ranking.evidence))

        for level, is_read, says in (("low", True, False), ("low", False, True), ("medium", True, True)):
            monkeypatch.setattr(search, "judge", lambda ranking, level=level: SimpleNamespace(level=level))
            monkeypatch.setattr(search, "rank", by_meaning if is_read else by_words)
            assert bool(ask(stage, "read the document")) is says


@requirement("hint:meaning")
@pytest.mark.parametrize(("patience_s", "is_told"), [(2.0, True), (0.0, False)])
async def test_a_hook_gets_its_answer_once_the_encoders_are_open_and_none_is_on_record_if_it_has_gone(
    patience_s: float, is_told: bool
) -> None:
    async with proxy_over(files(), policy="frozen", list_tokens=0) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        opened = asyncio.get_running_loop().create_future()
        stage.app.search.opening.connect(lambda: opened, lambda: 0.5)
        answers: list[dict[str, Any]] = []
        question = {"prompt": "read a document", "at": stage.app.recorder.now(), "patience_s": patience_s}
        stage.app.answering.prompt_answers._answer(Hello("", "", {}), question, answers.append)
        assert answers == []
        opened.set_result(None)
        await stage.client.until(lambda: bool(answers))
        assert bool(answers[0]["text"]) is is_told
        client = stage.app.clients.only_client()
        assert client is not None and client.session is not None
        shown = stage.store.sessions.exposures(client.session.record.key)
        assert [each.reason for each in shown].count("prompt") == is_told
        assert [each.text for each in stage.store.tasks.prompts()] == ["read a document"]


@requirement("hint:asks")
@pytest.mark.parametrize(
    ("client", "is_its"),
    [("code-server", True), ("VSCodium", True), ("Code - OSS", True), ("Visual Studio Code - Insiders", True),
     ("cursor-vscode", False), ("claude-code", False)],
)  # fmt: skip
async def test_the_hook_of_vs_code_speaks_of_any_build_of_its_source_and_of_no_other_client(
    client: str, is_its: bool
) -> None:
    async with proxy_over(files()) as stage:
        for name in (client, "goose"):
            await stage.connect().initialize(name)
        found = stage.app.answering.prompt_answers.sessions_of("", str(Path.cwd()), "visual studio code")
        assert [each.record.client for each in found] == [client] * is_its


@requirement("hint:earlier")
@pytest.mark.parametrize(("hook", "age_s", "missed"), [("visual studio code", 20, 0), ("codex", 20, 1), ("", 900, 1)])
async def test_what_a_hint_named_before_the_client_started_its_server_is_no_miss(
    tmp_path: Path, hook: str, age_s: int, missed: int
) -> None:
    """VS Code runs the hook first, and starts a server that it knows once the model calls a tool."""
    with open_store(tmp_path / "foretool.sqlite3") as store:
        async with proxy_over(files(), store=store, policy="frozen", list_tokens=0, list_names=False) as stage:
            here, at = str(Path.cwd()), stage.app.recorder.now() - age_s
            store.tasks.add_prompt(Prompt(at, "read the document", "chat", here, hook))
            store.sessions.add_exposure(Exposure("chat", at, "frozen", 0, (READ,), 200, "prompt"))
            others = stage.connect()
            await others.initialize("claude-code")
            await stage.client.initialize("Visual Studio Code")
            await stage.client.list_tools()
            stage.app.answering.prompt_answers.tick()
            await stage.client.call_tool("call_tool_write", {"name": READ, "arguments": {"path": "a"}})
            assert len(stage.misses()) == missed
            (prompt,) = store.tasks.prompts()
            hints = [each.at for each in store.sessions.exposures(prompt.owner) if each.reason == "prompt"]
            assert hints == [at] * (1 - missed)


@requirement("hint:record")
async def test_a_prompt_is_kept_once_without_secrets_and_not_at_all_with_record_off() -> None:
    async with proxy_over(files(), token="hunter2hunter2") as stage:
        for _ in range(2):
            ask(stage, "the password is hunter2hunter2 " + "x" * MOST_TEXT, at=stage.app.recorder.now() - 1)
        texts = {each.text for each in stage.store.tasks.prompts()}
        assert all("hunter2" not in each and len(each) == MOST_TEXT for each in texts)
    async with proxy_over(files(), record="off") as stage:
        await stage.client.list_tools()
        assert ask(stage, "read a document").startswith(HEAD)
        assert stage.store.tasks.prompts() == []


@requirement("hint:asks")
async def test_the_profile_and_the_policy_decide_what_is_named() -> None:
    profiles = {"none": {"servers": ["other*"]}}
    async with proxy_over(files(), profiles=profiles) as stage:
        await stage.client.list_tools()
        assert OPEN in ask(stage, "open a document")
        assert ask(stage, "open a document", "none") == ""
        assert ask(stage, "open a document", "gone") == ""


@requirement("hint:asks")
async def test_a_tool_that_waits_for_the_user_is_never_named(tmp_path: Path) -> None:
    held = FakeUpstream("files", tools=files().tools, entry={"trust": "review"})
    with open_store(tmp_path / "foretool.sqlite3") as store:
        async with proxy_over(held, store=store, list_whole=False) as stage:
            await stage.client.list_tools()
            assert ask(stage, "open a document") == ""
            # Nor does the hook itself find it in the store, where no proxy runs.
            assert store.catalog.tool_heads([("files", each.fingerprint) for each in saved_upstreams(store)], 600) == []


@requirement("hint:record")
async def test_on_a_shared_proxy_a_prompt_is_told_in_the_story_of_its_own_client_alone() -> None:
    async with proxy_over(files(), policy="frozen", list_tokens=0) as stage:
        await stage.client.initialize("lazyclient")
        other = stage.connect()
        await other.initialize("claude-code")
        for each in (stage.client, other):
            await each.list_tools()
        ask(stage, "what time is it in Tokyo", client="claude-code")
        for each in (stage.client, other):
            await each.call_tool(READ, {"path": "a"})
        assert told_prompts(stage) == [
            ("lazyclient", []), ("claude-code", ["what time is it in Tokyo"]),
        ]  # fmt: skip


@requirement("hint:record")
@pytest.mark.parametrize(("hook", "told"), [("codex", []), ("", ["what time is it"])])
async def test_a_prompt_of_a_client_that_is_not_connected_is_nobodys(hook: str, told: list[str]) -> None:
    async with proxy_over(files(), policy="frozen", list_tokens=0) as stage:
        await stage.client.initialize("lazyclient")
        other = stage.connect()
        await other.initialize("claude-code")
        await stage.client.list_tools()
        ask(stage, "what time is it", client=hook)
        await stage.client.call_tool(READ, {"path": "a"})
        assert told_prompts(stage) == [("lazyclient", told)]


@requirement("hint:record")
async def test_where_one_client_alone_is_connected_the_prompt_is_its_own_whatever_it_is_called() -> None:
    async with proxy_over(files(), policy="frozen", list_tokens=0) as stage:
        await stage.client.initialize("lazyclient")
        await stage.client.list_tools()
        ask(stage, "what time is it", client="claude-code")
        ask(stage, "of another folder", client="claude-code", cwd="/somewhere/else")
        await stage.client.call_tool(READ, {"path": "a"})
        assert told_prompts(stage) == [("lazyclient", ["what time is it"])]


@requirement("hint:record")
@pytest.mark.parametrize(
    ("cwd", "hook", "others", "is_own"),
    [
        ("sub/deep", "claude-code", 0, True), ("sub", "claude-code", 3, True), ("sub", "", 0, True),
        ("/somewhere/else", "claude-code", 0, True), ("/somewhere/else", "claude-code", 1, False),
        ("/somewhere/else", "", 0, False), ("/somewhere/else", "codex", 0, False),
    ],
)  # fmt: skip
async def test_a_hint_is_told_to_the_session_whose_prompt_it_is_wherever_the_shell_has_gone(
    cwd: str, hook: str, others: int, is_own: bool
) -> None:
    async with proxy_over(files(), policy="frozen", list_tokens=0) as stage:
        await stage.client.initialize("claude-code")
        await stage.client.list_tools()
        folder = str(Path.cwd() / cwd)
        assert READ in ask(stage, "read a document", client=hook, cwd=folder, others=others)
        await stage.client.call_tool(READ, {"path": "a"})
        stage.app.recorder.commit()
        assert [each.tool for each in stage.store.calls.misses()] == ([] if is_own else [READ])
        (prompt,) = stage.store.tasks.prompts()
        assert bool(prompt.owner) == is_own


@requirement("hint:record")
async def test_a_prompt_of_one_of_two_windows_is_that_of_the_nearest_folder_and_else_of_neither() -> None:
    async with proxy_over(files(), policy="frozen", list_tokens=0) as stage:
        other = stage.connect()
        clients = list(stage.app.clients)
        for each, client, folder in zip((stage.client, other), clients, ("/w/a", "/w/a/b"), strict=True):
            client.folder = folder
            await each.initialize("claude-code")
            await each.list_tools()
        for cwd, owner in (("/w/a/c", 0), ("/w/a/b/c", 1), ("/w", None), ("/w/ab", None)):
            ask(stage, "read a document", client="claude-code", cwd=cwd)
            stage.app.recorder.commit()
            session = clients[owner].session if owner is not None else None
            assert stage.store.tasks.prompts()[0].owner == (session.record.key if session else ""), cwd


def told_prompts(stage: Stage) -> list[tuple[str, list[str]]]:
    """By miss, the oldest first: its client, and what the story says that the user asked."""
    stage.app.recorder.commit()
    stories = [read_miss_story(stage.store, miss) for miss in stage.store.calls.misses()]
    told = [(each.session, [step.what for step in each.story if step.kind == "prompt"]) for each in stories]
    return [(session.client if session else "", prompts) for session, prompts in told][::-1]


def test_a_question_is_read_with_care() -> None:
    known = {"prompt": "hi", "at": 99.5, "session": "s", "cwd": "/w"}
    assert read_question(known, 100.0) == Prompt(99.5, "hi", "s", "/w")
    for at in (None, "x", 1e300, float("inf"), float("nan"), 5.0):
        assert read_question({"prompt": "hi", "at": at, "session": None}, 100.0) == Prompt(100.0, "hi")
    for prompt in (None, " ", 7, ["hi"]):
        with pytest.raises(ValueError, match="prompt: expected a text"):
            read_question({"prompt": prompt}, 100.0)

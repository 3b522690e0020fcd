"""The pages of the clients say what foretool does, and each has what was seen or says that nothing was."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from requirements import requirement

from bench import processes
from bench.agents import transcripts
from foretool.server.commands import hint
from foretool.server.commands.group import run
from foretool.server.lists.policy import choose_policy
from foretool.server.setup.clients import Machine, client_files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

pytestmark = pytest.mark.skipif(not (DOCS / "client_pages.py").is_file(), reason="needs a checkout")


def load_pages() -> ModuleType:
    sys.path.insert(0, str(DOCS))
    try:
        spec = importlib.util.spec_from_file_location("client_pages", DOCS / "client_pages.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["client_pages"] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(DOCS))


PAGES = load_pages() if (DOCS / "client_pages.py").is_file() else ModuleType("none")
FACTS = PAGES.read_facts() if hasattr(PAGES, "read_facts") else []
CLIENTS = [client for fact in FACTS for client in fact.clients]


@requirement("setup:pages")
def test_every_client_has_a_page_which_the_code_has_written() -> None:
    known = {each.client for each in client_files(Machine("linux", Path("/a"), {}, Path("/a"))) if each.registers}
    assert sorted(CLIENTS) == sorted(known)
    for path, text in PAGES.write_pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale; run python docs/generate.py"
    written = {path.name for path in (DOCS / "clients").glob("*.md")}
    assert written == {path.name for path in PAGES.write_pages()}, "no page of a client that is gone"
    assert all(f"]({name})" in (DOCS / "clients" / "README.md").read_text() for name in written - {"README.md"})


@requirement("setup:pages")
@pytest.mark.parametrize("client", CLIENTS)
def test_init_writes_the_entry_that_the_page_shows(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "FORETOOL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hint, "launcher", lambda: [PAGES.LAUNCH[0]])
    file = next(each for each in client_files(Machine("linux", tmp_path, {}, tmp_path)) if each.client == client)
    file.home.mkdir(parents=True, exist_ok=True)
    assert run(["init", "--yes", "--no-start", "--no-hook", "--client", client]) == 0
    written = file.path.read_text().strip().replace(str(tmp_path), "/home/you")
    for key, value in file.top:
        assert f"{key}: {value}\n" in written
        written = written.replace(f"{key}: {value}\n", "")
    (page,) = [fact for fact in FACTS if client in fact.clients]
    assert f"```{file.kind}\n{written}\n```" in PAGES.write_page(page)
    assert run(["init", "--undo"]) == 0
    assert not file.path.exists()


@requirement("setup:pages")
@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.clients[0])
def test_a_page_has_a_transcript_of_the_version_it_names_or_says_that_nothing_was_tried(fact: object) -> None:
    transcript = DOCS / "clients" / "transcripts" / f"{fact.clients[0]}.txt"  # type: ignore[attr-defined]
    tried, why_not = fact.tried, fact.why_not  # type: ignore[attr-defined]
    assert bool(tried) != bool(why_not)
    assert bool(tried) == transcript.is_file()
    text = (DOCS / "clients" / PAGES.name_of(fact)).read_text(encoding="utf-8")
    assert ("Not tried here: " in text) == bool(why_not)
    if tried:
        said = transcript.read_text(encoding="utf-8")
        (version,) = re.findall(r"\d+\.\d+\.\d+", tried)
        assert version in said.split("\n")[1] and version in text
        assert "discover_tools" in said and '"by its own name"' in said and "  says     done" in said
        assert "/tmp/" not in said and "127.0.0.1" not in said


@requirement("setup:pages")
@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.clients[0])
def test_the_policy_of_a_client_that_was_not_measured_is_what_auto_begins_with(fact: object) -> None:
    if not fact.tried:  # type: ignore[attr-defined]
        believed = choose_policy("auto", "legacy", fact.known_as, None)  # type: ignore[attr-defined]
        assert PAGES.policy_of(fact) == f"`{believed}`"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_transcript_has_what_init_prints_today(name: str) -> None:
    file = DOCS / "clients" / "transcripts" / f"{transcripts.CLIENTS[name]}.txt"
    kept = file.read_text(encoding="utf-8")
    now = transcripts.set_up_again(name, kept, processes.installed(None))
    same = [re.sub(r"\d{8}-\d{6}-\d{3}", "TIME", text) for text in (kept, now)]
    assert same[0] == same[1], "stale: python -m bench.agents.transcripts --set-up --into docs/clients/transcripts"

"""`mcp.json`: the clients' files unchanged, our block, and one clear line for whatever is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream, config_of
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.config import loader
from foretool.server.config.codes import Code
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.config.settings import ServerEntry, Settings
from foretool.storage.places import ServerAddress

ROOT = Path(__file__).parents[3]
GOOD = {"command": "uvx", "args": ["mcp-server-git"]}


def read(document: Any, **environ: str) -> Config:
    return loader.parse(json.dumps(document).encode(), Path("mcp.json"), {"HOME": "/home/me", **environ})


def refusal(text: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        loader.parse(text if isinstance(text, bytes) else text.encode(), Path("mcp.json"), {})
    return str(caught.value)


# What is read.


def test_vs_codes_file_with_comments_inputs_and_a_byte_order_mark_works() -> None:
    text = (
        '\ufeff// mine\n{"inputs": [{"id": "k"}], "servers": {"a": {"type": "stdio", "command": "x", "args": [],},},}'
    )
    assert list(loader.parse(text.encode(), Path("mcp.json"), {}).servers) == ["a"]


def test_a_file_with_much_of_its_client_is_one_warning_beside_what_was_mistyped() -> None:
    of_client = {f"key{number}": number for number in range(60)}
    found = read({"mcpServers": {"git": GOOD}, "fortool": {}, **of_client})
    assert found.warnings == (
        'mcp.json: fortool: not read by foretool; did you mean "foretool"?',
        "mcp.json: not read by foretool: key0, key1, key2, key3, key4 and 55 more",
    )


def test_a_limit_is_set_by_no_file_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    written = {"mcpServers": {"git": GOOD}, "foretool": {"limits": {"hold_ms": 7}}}
    assert read(written).settings.hold_ms == 7
    monkeypatch.delenv("FORETOOL_LIMITS")
    with pytest.raises(ConfigError, match=r"foretool\.limits: no such setting"):
        read(written)


def test_no_server_at_all_is_a_warning() -> None:
    assert read({"mcpServers": {}}).warnings == (
        "mcp.json: mcpServers: no server is enabled; clients will only see discover_tools",
    )


@pytest.mark.parametrize(
    ("block", "environ", "place"),
    [
        ({}, {}, "/home/me/.local/state/foretool/foretool.sqlite3"),
        ({}, {"XDG_STATE_HOME": "/s"}, "/s/foretool/foretool.sqlite3"),
        ({"storage": "~/x.db"}, {}, "/home/me/x.db"),
        ({"storage": "${DIR}/x.db"}, {"DIR": "/d"}, "/d/x.db"),
        ({"storage": "x.db"}, {}, "/etc/foretool/x.db"),
        ({"storage": "/y.db"}, {"FORETOOL_STORAGE": "/z.db"}, "/z.db"),
    ],
)
def test_where_the_database_is(block: dict[str, str], environ: dict[str, str], place: str) -> None:
    data = json.dumps({"mcpServers": {}, "foretool": block}).encode()
    found = loader.parse(data, Path("/etc/foretool/mcp.json"), {"HOME": "/home/me", **environ})
    assert found.storage == Path(place)


def read_storage(written: str, **environ: str) -> Config:
    data = json.dumps({"mcpServers": {}, "foretool": {"storage": written}}).encode()
    return loader.parse(data, Path("/etc/foretool/mcp.json"), {"HOME": "/home/me", **environ})


def test_the_address_of_a_database_shows_its_password_nowhere() -> None:
    found = read_storage("postgresql://me:${DB_PASSWORD}@db/tools", DB_PASSWORD="p%40ss-word")
    assert isinstance(found.storage, ServerAddress)
    assert found.storage.written == "postgresql://me:p%40ss-word@db/tools"
    assert str(found.storage) == "postgresql://me@db/tools"
    assert found.storage.folder is not None and found.storage.folder.parent == Path("/home/me/.local/state/foretool")
    assert "ss-word" not in repr(found) + repr(found.settings) + str(found.storage)
    assert found.secrets.redact("FATAL: p@ss-word, p%40ss-word") == "FATAL: [storage], [storage]"
    overridden = read_storage("x.db", FORETOOL_STORAGE="postgresql://db/tools")
    assert str(overridden.storage) == "postgresql://db/tools"


@pytest.mark.parametrize("written", ["postgresql://me:hunter/2@db/tools", "mysql://me:hunter2@db/tools"])
@pytest.mark.parametrize("from_environment", [False, True])
def test_an_address_that_cannot_be_read_is_refused_without_repeating_it(written: str, from_environment: bool) -> None:
    with pytest.raises(ConfigError, match=r"foretool\.storage") as caught:
        read_storage("" if from_environment else written, **({"FORETOOL_STORAGE": written} if from_environment else {}))
    assert caught.value.code is Code.STORAGE_ADDRESS and "hunter" not in str(caught.value)


def test_the_example_file_works() -> None:
    found = loader.load(ROOT / "mcp.json.example", {"HOME": "/home/me"})
    assert (list(found.servers), found.disabled) == (["time", "git", "github"], ("files",))
    assert (found.broken, found.warnings) == ({}, ())


def test_every_example_of_the_page_works() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    environ = {
        "GITHUB_TOKEN": "t",
        "TICKETS_SECRET": "t",
        "MAIL_SECRET": "x",
        "FORETOOL_SEAL_KEY": "a" * 43,
        "NIGHTLY_SECRET": "t",
    }
    for block in page.split("```json")[1:]:
        text = block.partition("\n")[2].partition("```")[0]
        assert loader.parse(text.encode(), Path("mcp.json"), environ).broken == {}


# What is wrong.


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", '1:1: the file is empty; write {"mcpServers": {}}'),
        ("[]", '1:1: expected an object, found a list; write {"mcpServers": {...}}'),
        (
            '{"mcpServers": {"a": {"command": "x",}}',
            '1:40: expected "," or "}", found the end of the file; close the "{" of line 1',
        ),
        (
            '{"mcpServers": []}',
            '1:16: mcpServers: expected an object of servers by name, found a list; write {"name": {...}}',
        ),
        (
            '{"mcpServers": {"a": {"args": []}}}',
            '1:22: mcpServers.a: expected "command" or "url", found "args"; say how the server is reached',
        ),
        (
            '{"mcpServers": {},\n "foretool": {"list_token": 1}}',
            '2:15: foretool.list_token: no such setting; did you mean "list_tokens"?',
        ),
        (
            '{"mcpServers": {},\n "foretool": {"list_tokens": "1"}}',
            "2:30: foretool.list_tokens: expected a whole number, found a string; write it without quotes",
        ),
        (
            '{"mcpServers": {}, "foretool": {"bind": "8399"}}',
            '1:41: foretool.bind: expected host:port, like "127.0.0.1:8399" or "[::1]:8399", '
            "or \"unix:/path/of/a.sock\", found '8399'",
        ),
        (
            '{"mcpServers": {}, "foretool": {"token": "${T}"}}',
            "1:42: foretool.token: variable T is not set: write its value there, or set it where your client starts",
        ),
        (
            '{"mcpServers": {}, "foretool": {"profiles": {"a/b": {}}}}',
            "1:46: foretool.profiles.a/b: expected letters, digits, '.', '_' or '-' in a profile's name; "
            "it becomes part of an address",
        ),
        (
            '{"mcpServers": {}, "foretool": {"profiles": {"a": {"pins": []}}}}',
            '1:52: foretool.profiles.a.pins: no such setting; did you mean "pin"?',
        ),
        (b'{"mcpServers": "\xe9"}', "1:17: expected UTF-8, found byte 0xe9; save the file as UTF-8"),
        ("{}".encode("utf-16"), "1:1: expected UTF-8, found UTF-16; save the file as UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(text: str | bytes, line: str) -> None:
    assert refusal(text) == f"mcp.json:{line}"


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such paths")
def test_a_path_that_is_not_utf_8_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9") / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    with pytest.raises(ConfigError, match=r"mcp.json: the path has bytes that are not UTF-8; move the file") as refused:
        loader.load(path)
    assert refused.value.code == Code.CONFIG_UNREADABLE


def test_a_missing_or_unreadable_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no such file; run foretool init or foretool add, or name your client's file with --config"
    ):
        loader.load(tmp_path / "mcp.json")
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        loader.load(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        loader.load(Path("a\0b"))


# Secrets, reload, identity.


def test_no_value_of_a_variable_or_header_shows_anywhere() -> None:
    secret = "hunter2-hunter2"
    found = read(
        {
            "mcpServers": {
                "a": {"command": "x", "args": ["--key", "${KEY}"], "env": {"T": secret}, "bad": 1},
                "b": {
                    "url": f"https://u:{secret}@h.example/x?k={secret}",
                    "headers": {"Authorization": f"Bearer {secret}"},
                },
                "c": {"url": secret, "headers": {"A": secret}},
                "d": {"command": "x", "env": {"A": secret, "B": [secret]}},
            },
            "foretool": {"token": "${KEY}"},
        },
        KEY=secret,
    )
    shown = [repr(found), repr(found.servers), str(found.settings), *found.broken.values(), *found.warnings]
    shown += [server.address for server in found.servers.values()]
    assert list(found.broken) == ["c", "d"]
    assert not [text for text in shown if secret in text]
    assert secret not in found.secrets.redact(f"Authorization: Bearer {secret} ({secret})")
    assert [server.address for server in found.servers.values()] == ["x", "https://h.example"]


# Any input, and the cost.

keys = st.sampled_from(["mcpServers", "servers", "foretool", "command", "args", "env", "url", "headers", "type", "a"])
names = keys | st.sampled_from([*Settings.__struct_fields__, *ServerEntry.__struct_fields__]) | st.text(max_size=3)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["${X}", "auto", "https://h"])
)
documents = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=15
)


def assert_read_or_refused(data: bytes) -> None:
    try:
        found = loader.parse(data, Path("mcp.json"), {})
    except ConfigError as error:
        lines = [str(error)]
    else:
        lines = [*found.broken.values(), *found.warnings]
    assert all(line.isprintable() and line.startswith("mcp.json:") for line in lines), lines


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_in_one_line(data: bytes) -> None:
    assert_read_or_refused(data)


@given(documents, documents, documents)
def test_any_json_is_read_or_refused_in_one_line(anything: Any, server: Any, block: Any) -> None:
    assert_read_or_refused(json.dumps(anything).encode())
    assert_read_or_refused(json.dumps({"mcpServers": {"a": server, "b": GOOD}, "foretool": {}}).encode())
    assert_read_or_refused(json.dumps({"mcpServers": {"b": GOOD}, "foretool": block}).encode())


@given(st.sampled_from(ServerEntry.__struct_fields__), st.sampled_from(Settings.__struct_fields__), documents)
def test_any_value_of_any_setting_is_read_or_refused_in_one_line(entry_key: str, setting: str, value: Any) -> None:
    assert_read_or_refused(json.dumps({"mcpServers": {"a": GOOD | {entry_key: value}, "b": GOOD}}).encode())
    assert_read_or_refused(json.dumps({"mcpServers": {}, "foretool": {setting: value}}).encode())
    assert_read_or_refused(json.dumps({"mcpServers": {}, "foretool": {"profiles": {"p": value}}}).encode())


def test_reading_the_config_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path; from foretool.server.config import loader\n"
        "loader.load(Path('mcp.json.example'))\n"
        "heavy = 'pydantic', 'click', 'anyio', 'asyncio', 'difflib', 'hashlib', 'httpx2'\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=dict(os.environ))
    assert (found.stdout, found.stderr) == ("[]\n", "")


def test_who_holds_the_live_config_sees_a_reload() -> None:
    live = LiveConfig(config_of(FakeUpstream("calc", entry={"prefix": "c"}), record="off"))
    assert live.keeps_text is False
    live.now = config_of(FakeUpstream("calc"), profiles={"work": {"servers": ["calc"]}})
    assert live.keeps_text is True
    assert (live.profile("work").name, live.profile("gone").servers) == ("work", ())


def test_a_projects_file_read_again_still_does_not_choose_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, project = tmp_path / "foretool" / "mcp.json", tmp_path / "project" / "mcp.json"
    for path, block in ((own, {"storage": "own.db", "project_config": True}), (project, {"storage": "theirs.db"})):
        path.parent.mkdir(mode=0o700)
        path.write_text(json.dumps({"mcpServers": {"one": GOOD}, "foretool": block}))
        path.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(project.parent)
    found = loader.load()
    for config in (found, loader.load(own), loader.load_again(found)):
        assert (config.path, config.named_by, config.storage) == (project, "project_config", own.with_name("own.db"))
    named = loader.load_again(loader.load(project))
    assert (named.named_by, named.storage) == ("--config", project.with_name("theirs.db"))


def test_a_tools_entry_is_checked_strictly_and_other_clients_lists_are_left_alone() -> None:
    def with_tools(tools: Any) -> Config:
        return read({"mcpServers": {"hub": {"command": "x", "tools": tools}, "other": {"command": "y"}}})

    assert '"description"' in with_tools({"create": {"descripton": "x"}}).broken["hub"]
    for name in ("a b", "a.b", "a/b", "ä", "x" * 50):
        assert "letters, digits" in with_tools({"create": {"name": name}}).broken["hub"]
    copilot = with_tools(["*"])
    assert copilot.servers["hub"].entry.tools == {}
    assert any('tools: not read by foretool; it reads "include"' in each for each in copilot.warnings)

"""The servers of `mcp.json`: entries of every client are read, and a broken one stops no other."""

import json
from pathlib import Path
from typing import Any

import pytest

from foretool.server.config import loader
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config
from foretool.server.config.servers import fingerprint, program_of

GOOD = {"command": "uvx", "args": ["mcp-server-git"]}


def read(document: Any, **environ: str) -> Config:
    return loader.parse(json.dumps(document).encode(), Path("mcp.json"), {"HOME": "/home/me", **environ})


def test_a_clients_file_works_unchanged() -> None:
    found = read(
        {
            "mcpServers": {
                "git": {
                    "command": "uvx",
                    "args": ["mcp-server-git", "${REPO}"],
                    "env": {"PORT": 80, "DEBUG": True, "X": None},
                },
                "docs": {"url": "https://docs.example/mcp", "headers": {"X-Key": "${KEY}"}},
                "old": {"type": "sse", "url": "https://old.example/sse"},
                "cline": {"type": "streamableHttp", "url": "http://localhost:1/mcp"},
                "windsurf": {"serverUrl": "https://w.example/mcp", "env": None, "cwd": None},
            }
        },
        REPO="/r",
        KEY="k",
    )
    git, docs = found.servers["git"], found.servers["docs"]
    assert (git.type, git.command, git.args) == ("stdio", "uvx", ("mcp-server-git", "/r"))
    assert git.env == {"PORT": "80", "DEBUG": "true"}
    assert (docs.type, docs.url, docs.headers) == ("http", "https://docs.example/mcp", {"X-Key": "k"})
    assert [server.type for server in found.servers.values()] == ["stdio", "http", "sse", "http", "http"]
    assert (found.broken, found.warnings, found.disabled) == ({}, (), ())


def test_keys_of_other_clients_are_warnings() -> None:
    entry = GOOD | {"autoApprove": [], "trust": True, "timeout": 60000, "exlude": ["x"]}
    found = read({"mcpServers": {"git": entry}, "theme": "dark"})
    assert found.warnings == (
        "mcp.json: not read by foretool: theme",
        'mcp.json: mcpServers.git.autoApprove: not read by foretool; foretool reads "allow"',
        'mcp.json: mcpServers.git.trust: not read by foretool; its own "trust" is "pin", "review" or "auto"',
        'mcp.json: mcpServers.git.timeout: not read by foretool; foretool reads "timeout_s", in seconds',
        'mcp.json: mcpServers.git.exlude: not read by foretool; did you mean "exclude"?',
    )


@pytest.mark.parametrize("key", ["allow", "deny"])
@pytest.mark.parametrize(("rule", "said"), [("@destructiv", 'did you mean "@destructive"'), ("@read", ""), ("", "")])
def test_a_rule_for_a_class_that_does_not_exist_is_refused(key: str, rule: str, said: str) -> None:
    found = read({"mcpServers": {"a": GOOD, "b": GOOD | {key: ["x", rule]}}})
    assert f'mcpServers.b.{key}[1]: expected a pattern of names, "@write" or "@destructive", found' in found.broken["b"]
    assert said in found.broken["b"]
    with pytest.raises(ConfigError, match=r"profiles\.dev"):
        read({"mcpServers": {"a": GOOD}, "foretool": {"profiles": {"dev": {key: [rule]}}}})


def test_a_risk_is_one_of_three() -> None:
    found = read({"mcpServers": {"a": GOOD | {"risk": {"x": "read"}}, "b": GOOD | {"risk": {"x": "safe"}}}})
    assert found.servers["a"].entry.risk == {"x": "read"}
    said = 'mcpServers.b.risk.x: expected one of "read", "write", "destructive"; found \'safe\''
    assert said in found.broken["b"]


def test_a_disabled_server_is_left_out_and_may_be_unfinished() -> None:
    found = read({"mcpServers": {"a": GOOD, "b": {"disabled": True, "command": ["x"]}}})
    assert (list(found.servers), found.disabled, found.broken) == (["a"], ("b",), {})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (3, 'a: expected an object, found a number; write {"command": "..."} or {"url": "..."}'),
        ({"command": ["npx", "-y"]}, 'a.command: expected a string, found a list; put the arguments in "args"'),
        (
            {"command": "x", "url": "http://y"},
            'a: expected "command" or "url", found both; keep one, or make two servers of it',
        ),
        (
            {"command": "x", "type": "sse"},
            'a.type: expected "stdio" beside "command", found "sse"; correct it or leave it out',
        ),
        ({"url": "h.example"}, "a.url: expected an address that starts with http:// or https://; write it in full"),
        (
            {"url": "http://h:99999/mcp"},
            "a.url: expected a host and a port up to 65535; correct the port or leave it out",
        ),
        (
            {"url": "http://h", "headers": {"X": "a\nb"}},
            "a.headers.X: expected a header on one line; remove line breaks and blanks in its name",
        ),
        (
            {"command": "x", "env": {"A=B": ""}},
            'a.env."A=B": expected a variable\'s name without "=", and no NUL; correct the name',
        ),
        ({"command": "x\0"}, "a.command: expected text, found a NUL character; remove \\u0000"),
        (
            {"command": "x", "env": {"T": "${T}"}},
            "a.env.T: variable T is not set: write its value there, or set it where your client starts",
        ),
    ],
)
def test_one_bad_server_is_broken_and_the_others_run(entry: Any, said: str) -> None:
    found = read({"mcpServers": {"good": GOOD, "a": entry}})
    assert list(found.servers) == ["good"]
    assert found.broken["a"].partition(" ")[2] == f"mcpServers.{said}"
    with pytest.raises(ConfigError, match=r"\(2 servers, none usable\)$"):
        read({"mcpServers": {"a": entry, "b": entry}})


def test_the_fingerprint_is_how_the_upstream_is_reached_without_values() -> None:
    def of(entry: dict[str, Any], **environ: str) -> str:
        return fingerprint(read({"mcpServers": {"a": entry}}, **environ).servers["a"])

    base = of(GOOD | {"env": {"A": "${V}"}}, V="1")
    assert len(base) == 16
    assert base == of(GOOD | {"env": {"A": "other"}, "pin": ["x"], "prefix": "", "type": "stdio"})
    changed = [
        GOOD,
        GOOD | {"env": {"B": ""}},
        GOOD | {"cwd": "/", "env": {"A": ""}},
        {"command": "uvx", "env": {"A": ""}},
    ]
    assert len({base, *(of(entry) for entry in changed)}) == 5


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("npx -y @x/mail", "npx -y @x/mail", True),
        ("npx -y @x/mail --account home", "npx -y @x/mail --account=work --read-only", True),
        ("uvx --python 3.12 mail", "uvx --python 3.12 mail --account work", True),
        ("docker run -i --rm -e TOKEN mail", "docker run -i --rm -e TOKEN mail", True),
        ("python -m mail", "python -m mail --account work", True),
        ("npx -y @x/mail", "npx -y @x/evil", False),
        ("npx -y @x/mail", "bunx @x/mail", False),
        ("uvx --python 3.12 mail", "uvx --python 3.12 evil", False),
        ("uvx --from mail start", "uvx --from evil start", False),
        ("uv run mail.py", "uv run evil.py", False),
        ("docker run -i --rm -e TOKEN mail", "docker run -i --rm -e TOKEN evil", False),
        ("docker run -i mail", "docker run -i evil", False),
        ("python -m mail", "python -m evil", False),
        ("npx -y mcp-remote https://mail.example/mcp", "npx -y mcp-remote https://evil.example/mcp", False),
        ("npx -y bridge --sse https://mail.example", "npx -y bridge --sse https://evil.example", False),
        ("npx -y bridge --url=https://mail.example", "npx -y bridge --url=https://evil.example", False),
    ],
)
def test_two_accounts_run_one_program_and_another_package_is_another(one: str, other: str, is_same: bool) -> None:
    entries = {
        name: {"command": command, "args": args, "env": {"TOKEN": name}}
        for name, (command, *args) in (("one", one.split()), ("other", other.split()))
    }
    found = read({"mcpServers": entries}).servers
    assert (program_of(found["one"]) == program_of(found["other"])) is is_same


def test_two_accounts_at_one_address_are_one_program() -> None:
    address = "https://mail.example/mcp"
    entries = {name: {"url": address, "headers": {"X-Account": name}} for name in ("one", "other")}
    found = read({"mcpServers": {**entries, "evil": {"url": "https://evil.example/mcp"}}}).servers
    one, other, evil = map(program_of, found.values())
    assert one == other != evil

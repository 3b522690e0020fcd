"""What the MCP Registry says of a server becomes an entry of ours, and runs or reads nothing beyond what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from registry_fakes import item, npm, registry

from foretool.server.config.loader import parse
from foretool.server.setup import mcp_registry
from foretool.server.setup.mcp_registry import RegistryError, RegistryListing


def listing(**server: Any) -> RegistryListing:
    def answer(url: str) -> bytes:
        return json.dumps({"servers": [item(**server)]}).encode()

    return mcp_registry.find_listing("https://r", "io.github.ann/weather", answer)


def entry(**server: Any) -> dict[str, Any]:
    found = listing(**server)
    return mcp_registry.choose_launch(found).entry


def test_packages_become_commands_with_their_version() -> None:
    assert entry(packages=[npm("@ann/weather")])["args"] == ["-y", "@ann/weather@1.2.3"]
    pypi = {"registryType": "pypi", "identifier": "weather", "version": "1.0", "runtimeHint": "uvx"}
    assert entry(packages=[pypi]) == {"command": "uvx", "args": ["weather@1.0"]}
    variable = [{"name": "KEY", "isRequired": True, "isSecret": True}]
    oci = {"registryType": "oci", "identifier": "ghcr.io/ann/weather:2", "environmentVariables": variable}
    assert entry(packages=[oci]) == {
        "command": "docker",
        "args": ["run", "-i", "--rm", "-e", "KEY", "ghcr.io/ann/weather:2"],
        "env": {"KEY": "${KEY}"},
    }


def test_arguments_come_in_order_and_optional_ones_stay_away() -> None:
    arguments = [
        {"type": "positional", "value": "serve"},
        {"type": "named", "name": "--units", "default": "metric"},
        {"type": "named", "name": "--key", "isRequired": True, "isSecret": True, "valueHint": "api-key"},
        {"type": "named", "name": "--verbose"},
        {"type": "positional", "valueHint": "folder", "description": "Where"},
        {"type": "named", "name": "--city", "value": "{city}", "variables": {"city": {"isRequired": True}}},
    ]
    found = listing(packages=[npm(packageArguments=arguments)]).offers[0]
    assert found.entry["args"] == [
        "-y", "weather-mcp@1.2.3", "serve", "--units", "metric", "--key", "${API_KEY}", "--city", "${CITY}",
    ]  # fmt: skip
    assert [(need.name, need.is_secret) for need in found.needs] == [("API_KEY", True), ("CITY", False)]


def test_an_address_has_its_headers_and_asks_for_what_is_missing() -> None:
    remote = {
        "type": "streamable-http",
        "url": "https://{tenant}.example.com/mcp",
        "variables": {"tenant": {"description": "Yours", "isRequired": True}},
        "headers": [
            {"name": "Authorization", "value": "Bearer {token}", "variables": {"token": {"isSecret": True}}},
            {"name": "X-Opt"},
        ],
    }
    offer = listing(remotes=[remote]).offers[0]
    assert offer.entry == {
        "url": "https://${TENANT}.example.com/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
    }
    server = mcp_registry.server_of(listing(remotes=[remote]), offer, "", {"TENANT": "ann"})
    assert (server.name, server.entry["url"]) == ("weather", "https://ann.example.com/mcp")


def test_the_newest_version_counts_and_deleted_servers_do_not_exist() -> None:
    old = item(version="1.0.0", latest=False)
    gone = item("io.github.ann/weather-old")
    gone["_meta"][next(iter(gone["_meta"]))]["status"] = "deleted"
    body = json.dumps({"servers": [item(version="2.0.0"), old, gone]}).encode()
    assert [each.version for each in mcp_registry.find_listings("https://r", "weather", lambda url: body)] == ["2.0.0"]


def test_a_server_is_found_by_its_exact_name_alone() -> None:
    body = json.dumps({"servers": [item("io.github.ann/weather2")]}).encode()
    with pytest.raises(RegistryError, match=r"has no server 'io.github.ann/weather'; it has: io.github.ann/weather2"):
        mcp_registry.find_listing("https://r", "io.github.ann/weather", lambda url: body)


@pytest.mark.parametrize(
    ("package", "why"),
    [
        (npm("--call=touch PWNED"), "is not the name of a package"),
        (npm("weather; touch x"), "is not the name of a package"),
        (npm("https://evil.example/x.tgz"), "is not the name of a package"),
        (npm(version="npm:evil"), "is not a version"),
        (npm(version="1 --call x"), "is not a version"),
        (npm(registryBaseUrl="https://evil.example"), "not from https://registry.npmjs.org"),
        (npm(registryType="shell"), "cannot be run by foretool"),
        (npm(runtimeArguments=[{"type": "named", "name": "--call", "value": "touch x"}]), "the argument '--call'"),
        (npm(runtimeArguments=[{"type": "positional", "value": "-c"}]), "the argument '-c'"),
        (npm(environmentVariables=[{"name": "NODE_OPTIONS", "value": "--require /tmp/x"}]), "sets NODE_OPTIONS"),
        (npm(environmentVariables=[{"name": "npm_config_registry", "value": "https://e"}]), "sets npm_config_registry"),
        (npm(environmentVariables=[{"name": "LD_PRELOAD", "isRequired": True}]), "sets LD_PRELOAD"),
        (npm(environmentVariables=[{"name": "A=B", "value": "x"}]), "is not the name of a variable"),
        (npm(packageArguments=[{"type": "positional", "value": "a\x1b[2Jb"}]), "invisible character"),
        (npm(packageArguments=[{"type": "named", "name": "--x y", "value": "z"}]), "is not the name of an argument"),
        (npm(transport={"type": "streamable-http", "url": "http://x"}), "has to be started by hand"),
        ({"registryType": "oci", "identifier": "--privileged"}, "is not the name of a package"),
        (
            {"registryType": "oci", "identifier": "a/b", "runtimeArguments": [{"name": "-v", "value": "/:/host"}]},
            "give docker the argument '-v'",
        ),
        ({"registryType": "pypi", "identifier": "x @ git+https://e"}, "is not the name of a package"),
    ],
)
def test_what_could_run_something_else_is_refused(package: dict[str, Any], why: str) -> None:
    found = listing(packages=[package])
    assert found.offers == () and why in found.refused[0] and found.refused[0].isprintable()
    with pytest.raises(RegistryError, match="offers nothing that can be added"):
        mcp_registry.choose_launch(found)


@pytest.mark.parametrize(
    "url", ["http://plain.example/mcp", "https://user:pw@h/", "ftp://h", "https://h\n/x", "javascript:x", "https:///x"]
)
def test_an_address_that_is_not_plain_https_is_refused(url: str) -> None:
    assert listing(remotes=[{"type": "streamable-http", "url": url}]).offers == ()


@pytest.mark.parametrize("written", ["${HOME}", "$${HOME}", "${env:HOME}", "${HOME:-x}", "a${HOME}b", "{HOME}", "$"])
def test_no_variable_of_the_user_is_put_into_what_a_stranger_wrote(written: str) -> None:
    package = npm(
        packageArguments=[{"type": "positional", "value": written}],
        environmentVariables=[{"name": "A", "value": written}, {"name": "B", "default": written}],
    )
    remote = {"type": "sse", "url": f"https://e.example/?q={written}", "headers": [{"name": "X", "value": written}]}
    found = listing(packages=[package], remotes=[remote])
    entries = {each.kind: each.entry for each in found.offers}
    config = parse(json.dumps({"mcpServers": entries}).encode(), Path("/nowhere/mcp.json"), {"HOME": "/secret"})
    assert not config.broken
    server = config.servers["npm"]
    assert (server.args[-1], server.env) == (written, {"A": written, "B": written})
    remote_server = config.servers["remote"]
    assert remote_server.url.endswith(f"?q={written}") and remote_server.headers == {"X": written}


def test_a_dollar_before_a_value_of_the_user_makes_no_text_of_it() -> None:
    remote = {"type": "sse", "url": "https://e.example/${key}", "variables": {"key": {"isRequired": True}}}
    assert listing(remotes=[remote]).offers[0].entry["url"] == "https://e.example/${KEY}"


@pytest.mark.parametrize("given", ["http://registry.example", "ftp://x", "registry.example", "https://"])
def test_a_registry_without_tls_is_refused(given: str) -> None:
    with pytest.raises(RegistryError, match="has to begin with https://"):
        mcp_registry.address_of(given, {})
    assert mcp_registry.address_of("", {"FORETOOL_REGISTRY": "https://own.example/"}) == "https://own.example"
    assert mcp_registry.address_of("http://127.0.0.1:1", {}) == "http://127.0.0.1:1"


def test_it_asks_for_the_newest_versions_and_escapes_the_words() -> None:
    with registry(item(packages=[npm()])) as answer:
        assert len(mcp_registry.find_listings(answer.url, "a b&limit=1", mcp_registry.fetch_url)) == 1
    assert answer.asked == ["/v0.1/servers?search=a%20b%26limit%3D1&version=latest&limit=100"]


def _set(**values: Any) -> Callable[[Any], None]:
    return lambda answer: [setattr(answer, key, value) for key, value in values.items()] and None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set(status=302, headers={"location": "https://evil.example/x"}), "sends us on to evil.example"),
        (_set(status=503), "HTTP 503"),
        (_set(body=b"[" * 100_000), "not JSON"),
        (_set(body=b"\xff\xfe"), "not JSON"),
        (_set(body=b"[]"), "without a list of servers"),
        (_set(body=b'{"servers": {}}'), "without a list of servers"),
        (_set(body=b" " * (mcp_registry.LARGEST + 1)), "more than 4 MiB"),
    ],
)
def test_an_answer_that_is_wrong_is_one_line(change: Callable[[Any], None], said: str) -> None:
    with registry() as answer:
        change(answer)
        with pytest.raises(RegistryError, match=said):
            mcp_registry.find_listing(answer.url, "io.github.ann/weather", mcp_registry.fetch_url)
    with pytest.raises(RegistryError, match="cannot be reached"):
        mcp_registry.find_listings(answer.url, "x", mcp_registry.fetch_url)


def test_items_of_wrong_types_are_left_out() -> None:
    junk = [None, 7, {}, {"server": []}, {"server": {"name": "\x1b[31mx/y"}}, {"server": {"name": 5}}]
    odd = item(packages=[7, {"registryType": 5}], remotes="x", repository=[1])
    body = json.dumps({"servers": [*junk, odd]}).encode()
    (found,) = mcp_registry.find_listings("https://r", "x", lambda url: body)
    assert found.name == "io.github.ann/weather" and found.offers == ()

"""The authorization server of HTTP clients in the config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretool.server.config import loader
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config

GRANT = {"claim": "groups", "values": ["developers"], "profiles": ["work"]}
ACCESS = {"issuer": "https://login.example.com", "resource": "https://tools.example.com/mcp", "grants": [GRANT]}


def read(environ: dict[str, str] | None = None, **changes: Any) -> Config:
    settings = {"profiles": {"work": {}}, "access": {**ACCESS, **changes}}
    return loader.parse(json.dumps({"mcpServers": {}, "foretool": settings}).encode(), Path("mcp.json"), environ or {})


def test_the_audience_is_the_resource_and_variables_are_expanded() -> None:
    access = read({"LOGIN": "login.example.com"}, issuer="https://${LOGIN}").settings.access
    assert access is not None
    assert (access.issuer, access.audience) == ("https://login.example.com", ("https://tools.example.com/mcp",))
    other = read({"AUD": "foretool"}, audience=["${AUD}"]).settings.access
    assert other is not None and other.audience == ("foretool",)
    assert loader.parse(b'{"mcpServers": {}}', Path("mcp.json"), {}).settings.access is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"issuer": ""}, "access.issuer: expected an address"),
        ({"issuer": "login.example.com"}, "access.issuer: expected an address"),
        (
            {"introspection_endpoint": "https://a.example/i"},
            "introspection_endpoint: expected client_id and client_secret",
        ),
        ({"introspection_endpoint": "http://a.example/i"}, "introspection_endpoint: expected https://"),
        ({"introspection_endpoint": "https://a.example/i", "jwks_url": "https://a.example/k"}, "jwks_url: found"),
        ({"issuer": "https://[::1"}, "access.issuer: expected an address"),
        ({"issuer": "http://login.example.com"}, "access.issuer: expected https://"),
        ({"issuer": "https://me:pass@login.example.com"}, "or a password"),
        ({"resource": "https://tools.example.com/mcp?x=1"}, "access.resource: expected an address"),
        ({"resource": 'https://tools.example.com/"mcp'}, "access.resource: expected an address without blanks"),
        ({"resource": None}, "access.resource: expected a string, found null"),
        ({"jwks_url": "file:///etc/passwd"}, "access.jwks_url: expected an address"),
        ({"audience": [""]}, "access.audience: expected names"),
        ({"scopes": ["a b"]}, "access.scopes: expected scopes without blanks"),
        ({"scopes": ['a"']}, "access.scopes: expected scopes without blanks"),
        ({"grants": []}, 'access.grants: expected who may use what, like [{"claim": "groups"'),
        ({"grants": [{**GRANT, "profiles": []}]}, 'access.grants[0]: expected "profiles", like ["default"]'),
        ({"grants": [{**GRANT, "claim": ""}]}, 'access.grants[0]: expected "claim"'),
        ({"grants": [{**GRANT, "value": ["x"]}]}, 'access.grants[0].value: no such setting; did you mean "values"?'),
        ({"isuer": "x"}, 'access.isuer: no such setting; did you mean "issuer"?'),
    ],
)
def test_a_wrong_entry_is_an_error_with_its_place_and_a_way_out(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(**changes)
    assert said in str(error.value)


def test_an_issuer_on_this_machine_needs_no_encryption() -> None:
    assert read(issuer="http://127.0.0.1:9000", resource="http://localhost:8399/mcp").settings.access is not None


def test_a_pattern_without_a_profile_is_a_warning() -> None:
    grants = [GRANT, {**GRANT, "profiles": ["wrok", "default", "w*"]}]
    (warning,) = [each for each in read(grants=grants).warnings if "grants" in each]
    assert "foretool.access.grants[1].profiles: 'wrok' matches no profile" in warning

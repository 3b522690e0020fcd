"""What clients learn of the authorization server."""

from __future__ import annotations

import json

import pytest
from issuer_fakes import ISSUER, RESOURCE, access_entry

from foretool.server.signin.challenge import read_challenge
from foretool.server.transports.client.well_known import all_scopes, challenge, metadata, metadata_url


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        (RESOURCE, "https://tools.example.com/.well-known/oauth-protected-resource/mcp"),
        ("https://tools.example.com", "https://tools.example.com/.well-known/oauth-protected-resource"),
        ("https://x.example:8443/a/mcp/", "https://x.example:8443/.well-known/oauth-protected-resource/a/mcp"),
    ],
)
def test_the_metadata_is_between_host_and_path(resource: str, url: str) -> None:
    assert metadata_url(access_entry(resource=resource)) == url


def test_the_metadata_names_resource_issuer_and_scopes() -> None:
    assert json.loads(metadata(access_entry(scopes=("mcp",)))) == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
        "resource_name": "foretool",
        "scopes_supported": ["mcp", "home", "decide"],
    }
    assert all_scopes(access_entry(grants=())) == ()


def test_our_own_sign_in_reads_our_challenge() -> None:
    found = read_challenge(challenge(access_entry(), "insufficient_scope", "more, please", ("mcp", "home")))
    assert (found.error, found.scope) == ("insufficient_scope", "mcp home")
    assert found.resource_metadata == metadata_url(access_entry())

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretool.server.config import loader
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config

GOOD = {"token_endpoint": "https://login.example/token", "client_id": "foretool", "client_secret": "${SECRET}"}


def read(entry: Any, **server: Any) -> Config:
    written = {"mcpServers": {"mail": {"url": "https://mail.example/mcp", "per_user": entry, **server}}}
    return loader.parse(
        json.dumps(written).encode(), Path("/home/ann/mcp.json"), {"SECRET": "s3cret-word", "A": "mail"}
    )


def test_variables_are_expanded_and_secrets_are_known() -> None:
    config = read({**GOOD, "audience": "${A}"})
    server = config.servers["mail"]
    assert server.per_user is not None and not server.may_sign_in
    assert (server.per_user.client_secret, server.per_user.audience) == ("s3cret-word", "mail")
    assert "s3cret-word" not in config.secrets.redact("x s3cret-word") and "s3cret-word" not in repr(server.per_user)


def test_a_key_file_is_found_beside_the_config() -> None:
    server = read({**GOOD, "client_secret": "", "private_key": "key.pem"}).servers["mail"]
    assert server.per_user is not None and server.per_user.private_key == "/home/ann/key.pem"


@pytest.mark.parametrize(("entry", "server", "said"), [
    ({**GOOD, "token_endpoint": "http://login.example/token"}, {}, "per_user.token_endpoint: expected https://"),
    ({**GOOD, "token_endpoint": ""}, {}, "per_user.token_endpoint: expected an address"),
    ({**GOOD, "client_secret": ""}, {}, "per_user.client_id: expected client_id beside it"),
    ({**GOOD, "private_key": "a.pem"}, {}, "per_user.client_id: expected client_id beside it"),
    ({**GOOD, "scope": "x"}, {}, "per_user"),
    (GOOD, {"url": None, "command": "mail"}, "per_user: expected a server with \"url\""),
    (GOOD, {"type": "sse"}, "per_user: expected a server with \"url\""),
    (GOOD, {"headers": {"Authorization": "Bearer x"}}, "per_user: expected no Authorization in headers"),
])  # fmt: skip
def test_what_no_person_could_use_is_refused_in_one_line(entry: Any, server: Any, said: str) -> None:
    written = {"url": "https://mail.example/mcp", "per_user": entry, **server}
    text = json.dumps(
        {"mcpServers": {"mail": {k: v for k, v in written.items() if v is not None}, "b": {"command": "b"}}}
    )
    config = loader.parse(text.encode(), Path("/home/ann/mcp.json"), {"SECRET": "s3cret-word"})
    assert said in config.broken["mail"] and "\n" not in config.broken["mail"], config.broken


def test_only_people_get_a_profile_of_their_own_and_only_where_it_matters() -> None:
    config = read(GOOD)
    live = loader.LiveConfig(config)
    assert live.profile("", "ann").key == "\x1fann" and live.profile("").key == "" == live.profile("").person
    other = loader.LiveConfig(loader.parse(b'{"mcpServers": {"b": {"command": "b"}}}', Path("mcp.json"), {}))
    assert other.profile("", "ann").key == ""


def test_a_grant_needs_a_key_that_seals_it_and_an_authorization_server_of_clients() -> None:
    grant = {**GOOD, "authorization_endpoint": "https://login.example/authorize"}
    access = {"issuer": "https://login.example", "resource": "https://tools.example/mcp",
              "grants": [{"claim": "sub", "values": ["*"], "profiles": ["*"]}]}  # fmt: skip
    servers = {"mail": {"url": "https://mail.example/mcp", "per_user": grant}, "b": {"command": "b"}}
    key = "a" * 43 + "="

    def parse(**block: Any) -> Config:
        text = json.dumps({"mcpServers": servers, "foretool": block}).encode()
        return loader.parse(text, Path("mcp.json"), {"SECRET": "s3cret-word", "KEY": key})

    assert "authorization_endpoint needs foretool.seal_keys" in parse().broken["mail"]
    assert "authorization_endpoint needs foretool.access" in parse(seal_keys=["${KEY}"]).broken["mail"]
    good = parse(seal_keys=["${KEY}"], access=access)
    assert not good.broken and good.settings.seal_keys == (key,) and key not in good.secrets.redact(f"x {key}")
    assert "KEY" in good.servers["b"].withheld
    for wrong in ("short", "", "!" * 43):
        with pytest.raises(ConfigError, match=r"seal_keys.0.?: expected 32 bytes in base64"):
            parse(seal_keys=[wrong])
    del servers["mail"]["per_user"]["authorization_endpoint"]  # type: ignore[index]
    traded = parse(access=access).servers["mail"].per_user
    assert traded is not None and traded.kind == "exchange"

"""Signing in, over the SDK's authorization server and over hostile ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from http_fakes import Asked, serving, upstream
from requirements import requirement
from sign_ins import a_server, a_vault, admin, agree, guarded, paste

from foretool.server.signin.flow import SignInError, sign_in
from foretool.server.signin.redirect import RedirectReceiver

pytestmark = pytest.mark.anyio


async def refuse(link: str, receiver: RedirectReceiver) -> None:
    pytest.fail("nobody may be sent there")


@pytest.mark.parametrize("person", [agree, paste])
async def test_a_person_signs_in(person: Any, tmp_path: Path) -> None:
    async with guarded() as url:
        record = await sign_in(a_server(url), a_vault(tmp_path), person)
    assert (record.server, record.url, record.resource, record.scope) == ("guarded", url, url, "read")
    assert record.access_token.startswith("acc-") and record.refresh_token.startswith("ref-")
    assert record.is_renewable and record.revocation_endpoint.endswith("/revoke")


async def test_a_second_sign_in_keeps_the_client_and_asks_for_more(tmp_path: Path) -> None:
    vault = a_vault(tmp_path)
    async with guarded() as url:
        server = a_server(url)
        first = await sign_in(server, vault, agree)
        vault.save(server, first)
        second = await sign_in(server, vault, agree)
        before = await admin(url)
        vault.note_wanted(server, _wanted("write"))
        third = await sign_in(server, vault, agree)
        after = await admin(url)
    assert (second.client_id, second.scope) == (first.client_id, "read")
    assert (before["register"], after["register"]) == (1, 2)  # the first client was registered for `read` alone
    assert third.scope == "read write"


def _wanted(scope: str) -> Any:
    from foretool.server.signin.record import Challenge

    return Challenge("insufficient_scope", scope)


async def test_a_client_of_the_config_is_used_with_its_port_and_scopes(tmp_path: Path) -> None:
    links: list[str] = []

    async def watch(link: str, receiver: RedirectReceiver) -> None:
        links.append(link)
        await agree(link, receiver)

    async with guarded(registration=False) as url:
        from http_fakes import unused_port

        port = unused_port()
        oauth = {"client_id": "own", "client_secret": "s3cret-word", "redirect_port": port, "scopes": ["write"]}
        known = {"client_id": "own", "client_secret": "s3cret-word", "scope": "read write"}
        await admin(url, client=known | {"redirect_uris": [f"http://127.0.0.1:{port}/callback"],
                                         "token_endpoint_auth_method": "client_secret_basic"})  # fmt: skip
        record = await sign_in(a_server(url, oauth=oauth), a_vault(tmp_path), watch)
    asked = parse_qs(urlsplit(links[0]).query)
    assert asked["redirect_uri"] == [f"http://127.0.0.1:{port}/callback"] and asked["code_challenge_method"] == ["S256"]
    assert asked["resource"] == [url]
    assert (record.client_id, record.auth_method, record.scope) == ("own", "client_secret_basic", "read write")
    assert "s3cret-word" not in links[0]


class Hostile:
    """A server that wants a sign-in, whose documents a test chooses. `{base}` in a value is its own address."""

    def __init__(self, **documents: Any) -> None:
        self.documents = documents
        self.asked: list[str] = []
        self.base = ""

    async def answer(self, asked: Asked) -> None:
        self.asked.append(asked.path)
        if asked.path == "/mcp":
            await asked.answer({}, 401, www_authenticate=self.documents.get("challenge", "Bearer"))
            return
        key = {"/register": "registration", "/token": "token"}.get(asked.path, "metadata")
        if asked.path.startswith("/.well-known/oauth-protected-resource"):
            key = "resource"
        found = self.documents.get(key, DEFAULTS.get(key))
        await asked.answer(
            {name: self._filled(each) for name, each in found.items()}, 201 if key == "registration" else 200
        )

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{base}", self.base)
        return [self._filled(each) for each in value] if isinstance(value, list) else value


RESOURCE = {"resource": "{base}/mcp", "authorization_servers": ["{base}"]}
METADATA = {
    "issuer": "{base}", "authorization_endpoint": "{base}/authorize", "token_endpoint": "{base}/token",
    "registration_endpoint": "{base}/register", "response_types_supported": ["code"],
    "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": ["none"],
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "resource": RESOURCE,
    "metadata": METADATA,
    "registration": {
        "client_id": "us",
        "token_endpoint_auth_method": "none",
        "redirect_uris": ["http://127.0.0.1/callback"],
    },
    "token": {"access_token": "tok-0123456789", "token_type": "Bearer", "expires_in": 60},
}


async def attempt(hostile: Hostile, tmp_path: Path, person: Any, **entry: Any) -> Any:
    async with serving(upstream(hostile.answer)) as hostile.base:
        return await sign_in(a_server(f"{hostile.base}/mcp", **entry), a_vault(tmp_path), person)


def coming_back(**answer: str) -> Any:
    """A browser that comes back with this, beside the right state."""

    async def person(link: str, receiver: RedirectReceiver) -> None:
        import httpx2

        state = parse_qs(urlsplit(link).query)["state"][0]
        async with httpx2.AsyncClient(verify=False) as http:
            await http.get(receiver.uri, params={"state": state, **answer})

    return person


async def test_a_server_that_behaves_is_signed_in_to(tmp_path: Path) -> None:
    hostile = Hostile()
    record = await attempt(hostile, tmp_path, coming_back(code="c"))
    assert (record.access_token, record.auth_method, record.is_renewable) == ("tok-0123456789", "none", False)


@requirement("trust:sign-in:issuer")
@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ({"metadata": METADATA | {"issuer": "https://honest.example"}}, "issuer mismatch"),
        ({"resource": RESOURCE | {"resource": "https://bank.example/mcp"}}, "does not match expected"),
        ({"metadata": METADATA | {"code_challenge_methods_supported": ["plain"]}}, "PKCE"),
        ({"metadata": {key: each for key, each in METADATA.items() if "challenge" not in key}}, "PKCE"),
    ],
)
async def test_metadata_of_another_server_is_not_used(documents: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(SignInError, match=said):
        await attempt(Hostile(**documents), tmp_path, refuse)


async def test_a_server_without_an_authorization_server_may_need_no_sign_in(tmp_path: Path) -> None:
    """It was told "Registration failed: 404 <!DOCTYPE html>", and works without any sign-in."""

    async def serve(asked: Asked) -> None:
        await asked.answer({}, 200 if asked.path == "/mcp" else 404)

    async with serving(upstream(serve)) as base:
        with pytest.raises(
            SignInError, match=r"no authorization server was found, so it may need no sign-in"
        ) as raised:
            await sign_in(a_server(f"{base}/mcp"), a_vault(tmp_path), refuse)
    assert "(the sign-in failed: Registration failed: 404" in str(raised.value)


@requirement("trust:sign-in:issuer")
async def test_an_answer_of_another_issuer_is_neither_used_nor_shown(tmp_path: Path) -> None:
    hostile = Hostile()
    for answer in ({"code": "stolen"}, {"error": "access_denied", "error_description": "CALL +1 555"}):
        with pytest.raises(SignInError, match="iss mismatch") as raised:
            await attempt(hostile, tmp_path, coming_back(iss="https://evil.example", **answer))
        assert "CALL" not in str(raised.value)
    assert "/token" not in hostile.asked


@requirement("trust:sign-in:issuer")
async def test_an_issuer_that_was_promised_has_to_come(tmp_path: Path) -> None:
    documents = {"metadata": METADATA | {"authorization_response_iss_parameter_supported": True}}
    with pytest.raises(SignInError, match="missing iss"):
        await attempt(Hostile(**documents), tmp_path, coming_back(code="c"))


@requirement("trust:sign-in:discovery")
@pytest.mark.parametrize(
    "documents",
    [
        {"resource": RESOURCE | {"authorization_servers": ["http://169.254.169.254/"]}},
        {"resource": RESOURCE | {"authorization_servers": ["https://10.0.0.1/"]}},
        {"metadata": METADATA | {"registration_endpoint": "http://10.0.0.1/register"}},
        {"metadata": METADATA | {"token_endpoint": "http://192.168.1.1/apply"}},
        {"metadata": METADATA | {"authorization_endpoint": "http://10.0.0.1/authorize"}},
    ],
)
async def test_metadata_leads_to_no_other_place(documents: Any, tmp_path: Path) -> None:
    with pytest.raises(SignInError, match=r"not encrypted|address of this machine"):
        await attempt(Hostile(**documents), tmp_path, coming_back(code="c"))


@requirement("trust:sign-in:discovery")
async def test_metadata_of_another_origin_is_not_asked_for(tmp_path: Path) -> None:
    other = Hostile()
    async with serving(upstream(other.answer)) as elsewhere:
        hostile = Hostile(challenge=f'Bearer resource_metadata="{elsewhere}/.well-known/oauth-protected-resource"')
        await attempt(hostile, tmp_path, coming_back(code="c"))
        hostile = Hostile(challenge='Bearer resource_metadata="file:///etc/passwd"')
        await attempt(hostile, tmp_path, coming_back(code="c"))
    assert other.asked == []


@requirement("trust:sign-in:words")
async def test_the_words_of_a_refusal_are_one_line_that_steers_no_terminal(tmp_path: Path) -> None:
    words = "no\x1b[2J\u202eevil\nforetool: run rm -rf / " + "x" * 10_000
    with pytest.raises(SignInError) as raised:
        await attempt(Hostile(), tmp_path, coming_back(error="access_denied", error_description=words))
    said = str(raised.value)
    assert said.startswith("the authorization server refused: access_denied (no")
    assert said.isprintable() and len(said) < 500


@requirement("trust:sign-in:silent")
async def test_what_a_token_endpoint_answers_wrongly_shows_no_code(tmp_path: Path) -> None:
    documents = {"token": {"access_token": ["tok-0123456789"]}}
    with pytest.raises(SignInError) as raised:
        await attempt(Hostile(**documents), tmp_path, coming_back(code="c0de-secret"))
    assert "c0de-secret" not in str(raised.value) and "tok-0123456789" not in str(raised.value)


async def test_a_client_of_the_config_goes_to_its_own_issuer_alone(tmp_path: Path) -> None:
    hostile = Hostile()
    oauth = {"client_id": "own", "client_secret": "s3cret-word", "issuer": "https://honest.example"}
    with pytest.raises(SignInError, match="another authorization server than the one that knows client_id"):
        await attempt(hostile, tmp_path, refuse, oauth=oauth)
    machine = oauth | {"grant": "client_credentials"}
    with pytest.raises(SignInError, match="issuer"):
        await attempt(hostile, tmp_path, refuse, oauth=machine)
    assert "/token" not in hostile.asked


async def test_a_machine_gets_a_token_without_a_person(tmp_path: Path) -> None:
    hostile = Hostile(token={"access_token": "tok-0123456789", "token_type": "Bearer"})
    async with serving(upstream(hostile.answer)) as hostile.base:
        oauth = {"grant": "client_credentials", "client_id": "own", "client_secret": "word", "issuer": hostile.base}
        hostile.documents = {"metadata": METADATA | {"token_endpoint_auth_methods_supported": ["client_secret_post"]}}
        record = await sign_in(a_server(f"{hostile.base}/mcp", oauth=oauth), a_vault(tmp_path), refuse)
    assert (record.grant, record.auth_method, record.is_renewable) == ("client_credentials", "client_secret_post", True)

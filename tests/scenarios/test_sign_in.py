"""Signing in before an authorization server that is not ours, npm's oidc-provider: PKCE, registration, renewal, scopes.

Everything is real: `foretool login`, a proxy on stdio, and the keys of machines. Where npm is away, nothing is run.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from listening import printing
from msgspec.structs import replace
from node import environment, installed
from requirements import requirement
from served import Served, foretool, write_config

from foretool.server.config.loader import load
from foretool.server.signin.vault import Vault

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("own_vault", "forked"),
]

SERVER = Path(__file__).parents[1] / "support" / "oidc_server.mjs"
VERSION = "9.13.3"
WAITING = 50
"""Calls that wait for one new token."""
SECRET = "s3cret-word-of-the-machine"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "robot.pem"
    made = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.with_suffix(".jwk").write_text(ECAlgorithm.to_jwk(made.public_key()))
    return path


@pytest.fixture(scope="module")
def url(key: Path) -> Iterator[str]:
    try:
        folder = installed("oidc-provider", VERSION)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"npm gives no oidc-provider: {error}")
    node = next(Path(each, "node") for each in environment()["PATH"].split(":") if Path(each, "node").exists())
    with printing([str(node), str(SERVER), str(folder), key.with_suffix(".jwk").read_text()]) as found:
        yield found


def admin(url: str, **wanted: Any) -> dict[str, int]:
    return dict(httpx2.post(urljoin(url, "/admin"), json=wanted).json())


def start_login(config: Path, *more: str) -> subprocess.Popen[str]:
    command = foretool("login", "guarded", "--config", str(config), *more)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def sign_in(config: Path) -> tuple[str, Json]:
    """Sign in as a person would; the link, and what `foretool login` said at the end."""
    process = start_login(config, "--json-lines", "--no-browser")
    assert process.stdout is not None
    link = str(json.loads(process.stdout.readline())["url"])
    with httpx2.Client(follow_redirects=True) as browser:
        assert browser.get(link).status_code == 200
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return link, dict(json.loads(rest.splitlines()[-1]))


@pytest.fixture
def config(tmp_path: Path, url: str) -> Path:
    return write_config(tmp_path, {"guarded": {"url": url}}, policy="full")


@pytest.fixture
def served(config: Path) -> Iterator[Served]:
    sign_in(config)
    found = Served(config)
    found.initialize()
    yield found
    found.leave()


@requirement("trust:sign-in:other-server")
def test_it_registers_itself_and_uses_pkce_which_the_server_insists_on(config: Path, url: str) -> None:
    before = admin(url)
    link, done = sign_in(config)
    after = admin(url)
    asked = parse_qs(urlsplit(link).query)
    assert asked["code_challenge_method"] == ["S256"] and asked["resource"] == [url]
    assert (after["register"] - before["register"], after["code"] - before["code"]) == (1, 1)
    assert (done["scope"], done["is_renewed"], done["kept"]) == ("read", True, "file")
    bare = {name: each[0] for name, each in asked.items() if not name.startswith("code_challenge")}
    with httpx2.Client() as browser:
        refused = browser.get(f"{link.partition('?')[0]}?{urlencode(bare)}")
    assert "error=invalid_request" in refused.headers["location"] and "PKCE" in refused.headers["location"]
    sign_in(config)
    assert admin(url)["register"] == after["register"], "the client is kept"


@requirement("trust:sign-in:once")
def test_a_token_is_renewed_before_it_expires_and_once_for_all_calls_that_wait(
    served: Served, config: Path, url: str
) -> None:
    assert served.call("guarded__read") == "read: read"
    server, vault = load(config).servers["guarded"], Vault.own()
    record = vault.load(server)
    assert record is not None
    vault.save(server, replace(record, expires_at=time.time() + 1, received_at=time.time() - 3600))
    before = admin(url)
    asked = [served.post("tools/call", {"name": "guarded__read", "arguments": {}}) for _ in range(WAITING)]
    answers = [served.reply(each)["result"]["content"][0]["text"] for each in asked]
    after = admin(url)
    assert set(answers) == {"read: read"}
    assert after["refresh"] - before["refresh"] == 1
    assert after["refused"] == before["refused"], "the old token was never shown again"
    admin(url, forget="access")
    asked = [served.post("tools/call", {"name": "guarded__read", "arguments": {}}) for _ in range(WAITING)]
    assert {served.reply(each)["result"]["content"][0]["text"] for each in asked} == {"read: read"}
    assert admin(url)["refresh"] - after["refresh"] == 1, "an end of the token before its time is noticed as well"


@requirement("trust:sign-in:other-server")
def test_after_a_revocation_a_call_says_what_to_do_and_works_once_it_is_done(
    served: Served, config: Path, url: str
) -> None:
    admin(url, forget="all")
    said = served.call("guarded__read")
    assert "its sign-in has ended. Ask the user to run `foretool login guarded`" in said and "[FT311]" in said
    sign_in(config)
    assert served.call("guarded__read") == "read: read", "the same process, without a restart"


@requirement("trust:sign-in:other-server")
def test_a_call_that_needs_more_is_told_so_and_the_next_sign_in_asks_for_it(served: Served, config: Path) -> None:
    assert served.call("guarded__read") == "read: read"
    assert "needs you to allow more" in served.call("guarded__write")
    link, done = sign_in(config)
    assert set(parse_qs(urlsplit(link).query)["scope"][0].split()) >= {"read", "write"}
    assert set(done["scope"].split()) >= {"read", "write"}
    assert served.call("guarded__write").startswith("write: ")


@requirement("trust:sign-in:other-server")
def test_logout_ends_the_tokens_at_the_server(config: Path, url: str) -> None:
    sign_in(config)
    record = Vault.own().load(load(config).servers["guarded"])
    assert record is not None
    command = foretool("logout", "guarded", "--config", str(config))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    for token in (record.access_token,):
        request = urllib.request.Request(url, b"{}", {"Authorization": f"Bearer {token}"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == 401
        refused.value.close()


@requirement("trust:sign-in:machine")
@pytest.mark.parametrize("kind", ["secret", "key"])
def test_a_machine_signs_in_by_itself_and_again_when_its_token_ends(
    kind: str, tmp_path: Path, url: str, key: Path
) -> None:
    known = {"client_id": "machine", "client_secret": SECRET} if kind == "secret" else {
        "client_id": "robot", "private_key": str(key)}  # fmt: skip
    oauth = {"grant": "client_credentials", "issuer": url.removesuffix("/mcp"), "scopes": ["read"], **known}
    config = write_config(tmp_path, {"guarded": {"url": url, "oauth": oauth}}, policy="full")
    before = admin(url)
    served = Served(config)
    try:
        served.initialize()
        assert served.call("guarded__read") == "read: read"
        assert admin(url)["machine"] - before["machine"] == 1
        admin(url, forget="access")
        asked = [served.post("tools/call", {"name": "guarded__read", "arguments": {}}) for _ in range(WAITING)]
        assert {served.reply(each)["result"]["content"][0]["text"] for each in asked} == {"read: read"}
        assert admin(url)["machine"] - before["machine"] == 2, "one sign-in for all calls"
    finally:
        served.leave()
    written = "".join(each.read_text() for each in tmp_path.rglob("*") if each.suffix in (".json", ".log"))
    assert "PRIVATE KEY" not in written + "".join(served.errors) and SECRET not in "".join(served.errors)


def test_a_key_of_another_kind_is_refused_in_words(tmp_path: Path, url: str, key: Path) -> None:
    other = rsa.generate_private_key(65537, 2048)
    path = tmp_path / "other.pem"
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert RSAAlgorithm.to_jwk(other.public_key()) != key.with_suffix(".jwk").read_text()
    oauth = {"grant": "client_credentials", "issuer": url.removesuffix("/mcp"), "client_id": "robot"}
    config = write_config(tmp_path, {"guarded": {"url": url, "oauth": {**oauth, "private_key": "other.pem"}}})
    command = foretool("login", "guarded", "--config", str(config))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "the sign-in failed" in done.stderr and "[FT322]" in done.stderr

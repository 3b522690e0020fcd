"""`${VAR}` in the config, and the secrets it brings."""

import pytest

from foretool.server.config.errors import Invalid
from foretool.server.config.variables import Expansion, Secrets, collect, secrets_in_url


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${A}", "one"),
        ("x${A}y${env:A}", "xoneyone"),
        ("${EMPTY:-two}${UNSET:-}", "two"),
        ("$${A} $A ${a b} ${", "${A} $A ${a b} ${"),
        ("${EMPTY}", ""),
    ],
)
def test_variables_are_replaced(written: str, value: str) -> None:
    assert Expansion({"A": "one", "EMPTY": ""}, ("x",)).text(written) == value


def test_a_missing_variable_is_named_with_the_way_out() -> None:
    expansion = Expansion({}, ("servers", "a")).at("env", "T")
    with pytest.raises(Invalid, match="variable T is not set; export it or write") as caught:
        expansion.text("${T}")
    assert caught.value.path == ("servers", "a", "env", "T")
    with pytest.raises(Invalid, match="asks the user in VS Code"):
        expansion.text("${input:token}")


def test_secrets_are_scrubbed_and_named_longest_first() -> None:
    expansion = Expansion({"KEY": "hunter22", "HOME": "/home/me"}, ("servers", "a"))
    expansion.at("headers", "Authorization").secret("Bearer ${KEY}", "Authorization")
    expansion.at("env", "PEM").secret("first line\nsecond line", "PEM")
    expansion.at("env", "PORT").secret("8080", "PORT")
    expansion.at("args", 0).text("${HOME}/docs")
    secrets = collect(expansion.secrets)
    assert secrets.redact("Bearer hunter22, hunter22, second line, 8080, /home/me") == (
        "[Authorization], [Authorization], [PEM], 8080, /home/me"
    )
    assert "hunter22" not in repr(secrets)


def test_passwords_and_queries_of_an_address_are_secrets() -> None:
    url = "https://me:opensesame@host/x?key=abcdefgh&n=1"
    assert collect(secrets_in_url(url)) == Secrets((("opensesame", "url"), ("abcdefgh", "url")))

"""Which words of a config may name a server, and that no secret is among them."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeUpstream, config_of
from requirements import requirement

from foretool.retrieval.rankers.servers import ServerNames
from foretool.server.catalog.server_words import read_server_names


def names_of(**entries: dict[str, Any]) -> ServerNames:
    config = config_of(*(FakeUpstream(name, entry=entry) for name, entry in entries.items()))
    return read_server_names(list(config.servers.values()), lambda name: config.servers[name].prefix)


def marks(**entry: Any) -> set[str]:
    """The words of one entry that another one does not have."""
    return set(names_of(one=entry, other={}).tell_apart(["one", "other"])["one"])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"args": ["/home/ada/shop"]}, {"home", "ada", "shop"}),
        ({"args": ["--db-path", "sales.db"]}, {"sales", "db"}),
        ({"args": ["--project=apollo"]}, {"apollo"}),
        ({"args": ["-e", "PGDATABASE=invoices"]}, {"invoices"}),
        ({"args": ["postgres://ada:pw@db.acme/stock"]}, {"db", "acme", "stock"}),
        ({"env": {"PGDATABASE": "invoices", "JIRA_URL": "https://acme.dev"}}, {"invoices", "acme", "dev"}),
        ({"env": {"GITHUB_ACCOUNT": "work"}}, {"work"}),
        ({"description": "My private account"}, {"private", "account"}),
        ({"command": None, "url": "https://mcp.acme.dev/shop?workspace=red"}, {"acme", "dev", "shop", "red"}),
    ],
)  # fmt: skip
def test_accounts_folders_hosts_and_databases_of_an_entry_may_name_it(entry: dict[str, Any], words: set[str]) -> None:
    assert marks(**entry) == words


@requirement("trust:ranking:named")
@pytest.mark.parametrize(
    "entry",
    [
        {"env": {"DB_PASSWORD": "sunflower"}},
        {"env": {"API_KEY": "sunflower", "DATABASE_TOKEN": "sunflower"}},
        {"env": {"GREETING": "sunflower", "PATH": "/opt/sunflower"}},
        {"env": {"DATABASE_URL": "postgres://sunflower:sunflower@localhost"}},
        {"args": ["--password", "sunflower"]},
        {"args": ["--api-key=sunflower", "sunflower", "-e", "PGPASSWORD=sunflower"]},
        {"args": ["--header", "Authorization: Bearer sunflower"]},
        {"args": ["postgres://ada:sunflower@localhost"]},
        {"args": ["/data/sunflower"], "env": {"DB_PASSWORD": "sunflower"}},
        {"command": None, "url": "https://sunflower@localhost/?token=sunflower&unknown=sunflower"},
        {"command": None, "url": "https://localhost/", "headers": {"X-Account": "sunflower"}},
    ],
)
def test_no_secret_of_an_entry_names_a_server(entry: dict[str, Any]) -> None:
    assert "sunflower" not in marks(**entry)
    assert "one" not in names_of(one=entry).find("run it on sunflower")


def test_a_prefix_names_a_server_as_well() -> None:
    assert set(names_of(one={"prefix": "personal"}).find("with personal")) == {"one"}


def test_servers_of_one_program_are_told_apart_by_their_folders_and_by_no_secret() -> None:
    paths = ["/opt/server.mjs", "/home/ada/all", "/home/ada/shop", "--key", "/etc/key", "/home/ada/sunflower"]
    one = {"command": "node", "args": paths, "env": {"API_TOKEN": "sunflower"}}
    other = {"command": "node", "args": ["/opt/server.mjs", "/home/ada/all", "~/notes"]}
    apart = names_of(one=one, other=other).folders_apart(["one", "other"])
    assert apart == {"one": ["/home/ada/shop"], "other": ["~/notes"]}

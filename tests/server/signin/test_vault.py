"""Where sign-ins are kept."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from requirements import requirement
from sign_ins import a_record, a_server, a_vault

from foretool.server.config.keyrings import SERVICE, KeyringError, open_keyring
from foretool.server.signin import vault as vaults
from foretool.server.signin.record import Challenge
from foretool.server.signin.vault import Vault, VaultError


class Ring:
    """A keyring in memory."""

    priority = 5

    def __init__(self, most: int = 10_000) -> None:
        self.held: dict[tuple[str, str], str] = {}
        self.most = most

    def set_password(self, service: str, name: str, secret: str) -> None:
        if len(secret) > self.most:
            raise ValueError("too long")
        self.held[service, name] = secret

    def get_password(self, service: str, name: str) -> str | None:
        return self.held.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        del self.held[service, name]


def test_what_is_saved_is_loaded_and_removed(tmp_path: Path) -> None:
    vault, server, record = a_vault(tmp_path), a_server(), a_record()
    assert vault.load(server) is None and vault.stamp(server) is None
    assert vault.save(server, record) == "file"
    assert vault.load(server) == record
    assert vault.remove(server) and not vault.remove(server)
    assert vault.load(server) is None


@requirement("trust:sign-in:files")
def test_files_are_open_to_their_user_alone_also_where_they_were_not(tmp_path: Path) -> None:
    vault, server = a_vault(tmp_path), a_server()
    (tmp_path / "sign-ins").mkdir(mode=0o755)
    vault.save(server, a_record())
    path = vault.path(server)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    vault.load(server)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each for each in path.parent.iterdir() if stat.S_IMODE(each.stat().st_mode) & 0o077] == []


@requirement("trust:sign-in:files")
def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    vault, server = a_vault(tmp_path), a_server()
    vault.save(server, a_record())
    foreign = tmp_path / "foreign.json"
    vault.path(server).rename(foreign)
    vault.path(server).symlink_to(foreign)
    with pytest.raises(VaultError, match="sign in again"):
        vault.load(server)


@requirement("trust:sign-in:files")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = a_vault(tmp_path)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(VaultError, match="belongs to another user"):
        vault.save(a_server(), a_record())


def test_secrets_go_to_the_keyring_where_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring, server, record = Ring(), a_server(), a_record()
    monkeypatch.setattr(vaults, "open_keyring", lambda: ring)
    vault = Vault(tmp_path / "sign-ins")
    assert vault.save(server, record) == "keyring"
    written = vault.path(server).read_text()
    assert not any(secret in written for secret in record.secrets)
    assert vault.load(server) == record
    known = vault.describe(server)
    assert known is not None and (known.is_renewed, known.scope, known.kept) == (True, "read", "keyring")
    assert list(ring.held) == [(SERVICE, vault.path(server).stem)]
    vault.remove(server)
    assert ring.held == {}


def test_a_token_that_the_keyring_refuses_is_kept_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vaults, "open_keyring", lambda: Ring(most=10))
    vault, server, record = Vault(tmp_path / "sign-ins"), a_server(), a_record()
    assert vault.save(server, record) == "file"
    assert vault.load(server) == record


def test_a_keyring_that_is_locked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring, vault, server = Ring(), Vault(tmp_path / "sign-ins"), a_server()
    monkeypatch.setattr(vaults, "open_keyring", lambda: ring)
    vault.save(server, a_record())

    def locked(service: str, name: str) -> str:
        raise RuntimeError("locked")

    monkeypatch.setattr(ring, "get_password", locked)
    with pytest.raises(VaultError, match="unlock it"):
        vault.load(server)


def test_no_keyring_is_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.backends.fail import Keyring

    monkeypatch.setattr(keyring, "get_keyring", Keyring)
    with pytest.raises(KeyringError, match="no keyring"):
        open_keyring()


@requirement("trust:sign-in:token")
def test_another_address_or_name_is_another_sign_in(tmp_path: Path) -> None:
    vault = a_vault(tmp_path)
    vault.save(a_server(), a_record())
    assert vault.load(a_server("https://evil.example/mcp")) is None


def test_what_a_server_asks_for_in_addition_is_kept_until_the_next_sign_in(tmp_path: Path) -> None:
    vault, server = a_vault(tmp_path), a_server()
    assert vault.wanted(server) == Challenge()
    vault.note_wanted(server, Challenge("insufficient_scope", "write"))
    assert vault.wanted(server).scope == "write"
    vault.save(server, a_record())
    assert vault.wanted(server) == Challenge()


def test_a_broken_file_says_what_to_do(tmp_path: Path) -> None:
    vault, server = a_vault(tmp_path), a_server()
    vault.save(server, a_record())
    vault.path(server).write_text("{")
    with pytest.raises(VaultError, match="sign in again"):
        vault.load(server)
    assert vault.describe(server) is None


def test_one_process_at_a_time_has_the_lock(tmp_path: Path) -> None:
    vault, server, order = a_vault(tmp_path), a_server(), []

    def second() -> None:
        with vault.locked(server):
            order.append("second")

    with vault.locked(server):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_the_folder_is_in_the_home_folder_unless_a_full_path_is_named() -> None:
    assert Vault.own({"HOME": "/home/me"}).folder == Path("/home/me/.local/state/foretool/sign-ins")
    assert Vault.own({"HOME": "/home/me", "FORETOOL_SIGN_INS": "/else"}).folder == Path("/else")
    assert Vault.own({"HOME": "/home/me", "FORETOOL_SIGN_INS": "relative"}).folder.is_relative_to("/home/me")

from __future__ import annotations

import base64
import os

import pytest

from foretool.fleet.people.seal import SealError, Seals, read_key

OLD, NEW = os.urandom(32), os.urandom(32)


def test_what_is_sealed_opens_for_what_it_belongs_to_alone() -> None:
    seals = Seals([OLD])
    sealed = seals.seal(b"secret", "grant", "mail", "ann")
    assert seals.open(sealed, "grant", "mail", "ann") == b"secret" and b"secret" not in sealed
    assert seals.seal(b"secret", "grant", "mail", "ann") != sealed
    for other in (("grant", "mail", "ben"), ("grant", "git", "ann"), ("consent", "mail", "ann"), ("grant", "mailann"),
                  ("grant", "mail", "ann", ""), ("grantmail", "ann"), ("grant", "mai", "lann"), ()):  # fmt: skip
        with pytest.raises(SealError, match="not as it was sealed"):
            seals.open(sealed, *other)


def test_every_changed_byte_is_noticed() -> None:
    seals = Seals([OLD])
    sealed = seals.seal(b"secret", "a")
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(SealError):
            seals.open(bytes(changed), "a")
    for short in (b"", sealed[:8], sealed[:-1], sealed + b"x"):
        with pytest.raises(SealError):
            seals.open(short, "a")


def test_a_key_is_changed_by_putting_a_new_one_first() -> None:
    before, both, after = Seals([OLD]), Seals([NEW, OLD]), Seals([NEW])
    sealed = before.seal(b"secret", "a")
    assert both.open(sealed, "a") == b"secret" and not both.is_current(sealed) and before.is_current(sealed)
    renewed = both.seal(b"secret", "a")
    assert both.is_current(renewed) and after.open(renewed, "a") == b"secret"
    with pytest.raises(SealError, match="a key that seal_keys does not have"):
        after.open(sealed, "a")
    with pytest.raises(SealError, match="set seal_keys"):
        Seals([]).seal(b"x", "a")


def test_keys_are_read_as_openssl_and_python_write_them() -> None:
    assert read_key(base64.b64encode(OLD).decode() + "\n") == read_key(
        base64.urlsafe_b64encode(OLD).decode().rstrip("=")
    )
    for wrong in ("", "short", base64.b64encode(OLD[:16]).decode(), "x" * 44, "é" * 43):
        with pytest.raises(ValueError, match="openssl rand"):
            read_key(wrong)
    assert OLD.hex() not in repr(Seals([OLD]))

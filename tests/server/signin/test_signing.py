from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from foretool.server.signin.tokens import SigningKeyError, read_signing_key


def written(folder: Path, key: Any, encryption: KeySerializationEncryption | None = None) -> str:
    file = folder / "key.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()))
    return str(file)


@pytest.mark.parametrize(("key", "algorithm"), [
    (rsa.generate_private_key(65537, 2048), "RS256"),
    (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    (ec.generate_private_key(ec.SECP256R1()), "ES256"),
    (ec.generate_private_key(ec.SECP384R1()), "ES384"),
    (ec.generate_private_key(ec.SECP521R1()), "ES512"),
])  # fmt: skip
def test_the_key_decides_the_algorithm(tmp_path: Path, key: Any, algorithm: str) -> None:
    found = read_signing_key(written(tmp_path, key))
    assert found.algorithm == algorithm and found.pem == (tmp_path / "key.pem").read_text()
    assert "PRIVATE" not in repr(found)


@pytest.mark.parametrize("key", [
    ec.generate_private_key(ec.SECP256K1()),
    ec.generate_private_key(ec.BrainpoolP256R1()),
    ed448.Ed448PrivateKey.generate(),
    x25519.X25519PrivateKey.generate(),
    dsa.generate_private_key(1024),
])  # fmt: skip
def test_a_key_of_another_kind_is_refused_by_name(tmp_path: Path, key: Any) -> None:
    path = written(tmp_path, key)
    with pytest.raises(SigningKeyError) as refused:
        read_signing_key(path)
    assert str(refused.value) == (
        f"private_key {path}: expected RSA, Ed25519, or an elliptic curve of NIST; make such a key"
    )


@pytest.mark.parametrize("content", [b"", b"no key", b"\xff\xfe", b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_what_is_no_key_is_said_in_one_line_that_does_not_quote_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(content)
    with pytest.raises(SigningKeyError, match=r"expected a private key in PEM form.*openssl pkey$"):
        read_signing_key(str(file))


def test_a_key_with_a_password_a_public_key_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    with pytest.raises(SigningKeyError, match="without a password"):
        read_signing_key(written(tmp_path, key, BestAvailableEncryption(b"word")))
    public = tmp_path / "public.pem"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(SigningKeyError, match="expected a private key"):
        read_signing_key(str(public))
    with pytest.raises(SigningKeyError, match=r"absent\.pem cannot be read \(No such file or directory\)"):
        read_signing_key(str(tmp_path / "absent.pem"))
    with pytest.raises(SigningKeyError, match="cannot be read"):
        read_signing_key(str(tmp_path))

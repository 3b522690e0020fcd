"""The private key with which foretool shows that it is a client (RFC 7523), and the algorithm of each kind of key.

RFC 7518, section 3.1 says which algorithms there are. The key decides among them, so the config names none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
"""By the name of an elliptic curve: the algorithm that its keys sign with."""


class SigningKeyError(Exception):
    """The key cannot be used. The message is one line, names the file and says what to do."""


class SigningKey(Struct, frozen=True):
    """A private key in PEM form, and the algorithm that it signs with."""

    pem: str
    algorithm: str

    def __repr__(self) -> str:
        return f"SigningKey({self.algorithm!r})"


def read_signing_key(path: str) -> SigningKey:
    """Read a private key from its file. Raises `SigningKeyError`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        pem = Path(path).read_text(encoding="ascii")
        algorithm = _algorithm_of(load_pem_private_key(pem.encode(), None))
    except OSError as error:
        raise SigningKeyError(f"private_key {path} cannot be read ({error.strerror}); correct its path") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        problem = f"private_key {path}: expected a private key in PEM form without a password"
        raise SigningKeyError(f"{problem}; convert it with openssl pkey") from None
    if not algorithm:
        wanted = "expected RSA, Ed25519, or an elliptic curve of NIST"
        raise SigningKeyError(f"private_key {path}: {wanted}; make such a key")
    return SigningKey(pem, algorithm)


def _algorithm_of(key: object) -> str:
    """Return what a private key signs with, "" for a kind that authorization servers do not take."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    return CURVES.get(key.curve.name, "") if isinstance(key, ec.EllipticCurvePrivateKey) else ""

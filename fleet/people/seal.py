"""Seals what the database keeps of people's grants (AES-256-GCM), with keys that the database does not have.

The first key seals, every key opens, so a key is changed by putting a new one before it. What a text belongs to is
sealed in with it: a row that somebody copies to another person or another server does not open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION: Final = b"\x01"


_KEY_BYTES: Final = 32


_NAME, _NONCE = 8, 12


_HEAD: Final = len(_VERSION) + _NAME + _NONCE


class SealError(Exception):
    """A text cannot be decrypted; the message is one line without any of it."""


def read_key(written: str) -> bytes:
    """Return a key of 32 bytes, which is written in base64. Raises `ValueError`."""
    letters = written.strip().rstrip("=")
    try:
        key = base64.urlsafe_b64decode(letters.replace("+", "-").replace("/", "_") + "=" * (-len(letters) % 4))
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise ValueError("expected 32 bytes in base64, as `openssl rand -base64 32` prints them")
    return key


class Seals:
    """Encrypts and decrypts texts with the keys of a config; the first key encrypts."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._names = [hashlib.sha256(b"foretool seal" + key).digest()[:_NAME] for key in keys]
        self._keys = {name: AESGCM(key) for name, key in zip(self._names, keys, strict=True)}

    def seal(self, text: bytes, *belongs: str) -> bytes:
        """Return a text encrypted with the first key. `belongs`: what the text is about; `open` needs the same."""
        if not self._names:
            raise SealError("no key seals it: set seal_keys")
        head = _VERSION + self._names[0]
        nonce = os.urandom(_NONCE)
        return head + nonce + self._keys[self._names[0]].encrypt(nonce, text, head + _bind(belongs))

    def open(self, sealed: bytes, *belongs: str) -> bytes:
        """Return the decrypted text. Raises `SealError` for one that was changed, or whose key is gone."""
        head, nonce = sealed[: len(_VERSION) + _NAME], sealed[len(_VERSION) + _NAME : _HEAD]
        key = self._keys.get(head[len(_VERSION) :])
        if head[: len(_VERSION)] != _VERSION or len(nonce) != _NONCE:
            raise SealError("it is not as it was sealed")
        if key is None:
            raise SealError("it was sealed with a key that seal_keys does not have")
        try:
            return key.decrypt(nonce, sealed[_HEAD:], head + _bind(belongs))
        except InvalidTag:
            raise SealError("it is not as it was sealed") from None

    def is_current(self, sealed: bytes) -> bool:
        """Return whether a text is encrypted with the first key."""
        return bool(self._names) and sealed[len(_VERSION) : len(_VERSION) + _NAME] == self._names[0]

    def __repr__(self) -> str:
        return f"Seals({len(self._names)} keys)"


def _bind(belongs: Sequence[str]) -> bytes:
    # The lengths keep two lists with the same letters apart.
    parts = [each.encode("utf-8", "surrogatepass") for each in belongs]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)

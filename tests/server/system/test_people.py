"""Whose process this is."""

from __future__ import annotations

import os
import pwd

import pytest

from foretool.server.system import people


def test_it_is_the_user_of_the_system() -> None:
    found = people.own_person()
    assert found.principal == f"user:{os.geteuid()}" and found.name == pwd.getpwuid(os.geteuid()).pw_name


def test_a_number_without_a_name_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 424_242)
    assert people.own_person.__wrapped__().name == "424242"

"""Every name that is emitted stands in the tables of the docs, once."""

from __future__ import annotations

from foretool.fleet.telemetry import conventions


def test_every_name_of_the_module_is_explained() -> None:
    tables = "\n".join(str(row) for row in (*conventions.SPANS, *conventions.ATTRIBUTES, *conventions.METRICS))
    names = {
        value
        for key, value in vars(conventions).items()
        if key.isupper() and isinstance(value, str) and "." in value and not value.startswith("service.")
    }
    assert sorted(name for name in names if name not in tables) == []


def test_names_are_not_explained_twice() -> None:
    named = [row[0] for row in conventions.ATTRIBUTES]
    assert len(named) == len(set(named))

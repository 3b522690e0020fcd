"""Where a store is, as a setting says it, and what of an address nobody may read."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.storage.places import (
    ServerAddress,
    find_passwords,
    find_problem,
    local_file,
    local_folder,
    read_place,
)

STATE = Path("/home/me/.local/state/foretool")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("postgresql://me:hunter2@db.example:5432/tools", "postgresql://me@db.example:5432/tools"),
        ("postgres://me:hunter2@[::1]/tools", "postgres://me@[::1]/tools"),
        ("postgresql://db/tools?sslmode=require&password=hunter2", "postgresql://db/tools"),
        ("postgresql://:hunter2@db/tools", "postgresql://db/tools"),
        ("postgresql:///tools?host=/run/pg&sslpassword=hunter2", "postgresql:///tools?host=/run/pg"),
        ("postgresql://me:hunter2@a,b:5433/tools", "postgresql://me@a,b:5433/tools"),
    ],
)
def test_an_address_is_shown_without_its_password(written: str, shown: str) -> None:
    place = read_place(written, STATE)
    assert isinstance(place, ServerAddress) and place.written == written
    assert (str(place), repr(place)) == (shown, f"ServerAddress({shown!r})")
    assert f"{place}" == shown and "hunter2" not in f"{[place]!r}"


def test_the_files_of_a_database_have_a_folder_of_this_machine_which_a_new_password_does_not_change() -> None:
    first, again, other = (
        read_place(f"postgresql://me:{each}", STATE) for each in ("one@db/tools", "two@db/tools", "one@db/others")
    )
    assert local_file(first) == local_file(again) != local_file(other)
    assert local_folder(first) is not None and local_folder(first).parent == STATE  # type: ignore[union-attr]
    assert local_file(read_place("postgresql://db/tools")) is None
    assert local_file(read_place("/a/b.sqlite3")) == Path("/a/b.sqlite3")
    assert local_file(":memory:") is None


@pytest.mark.parametrize(
    ("written", "passwords"),
    [
        ("postgresql://me:p%40ss@db/tools", ["p%40ss", "p@ss"]),
        ("postgresql://me@db/tools?password=hidden&sslmode=require", ["hidden"]),
        ("postgresql://me@db/tools", []),
        ("/a/b:c@d.sqlite3", []),
    ],
)
def test_passwords_are_found_as_they_are_written_and_as_they_are_meant(written: str, passwords: list[str]) -> None:
    assert list(find_passwords(written)) == passwords


@pytest.mark.parametrize(
    "written",
    [
        "postgresql://me:hun@ter2@db/tools", "postgresql://me:hun/ter2@db/tools", "postgresql://me:hun#ter2@db/tools",
        "postgresql://me:hun%ter2@db/tools", "postgresql://me:hun:ter2@db/tools", "postgresql://me:hun ter2@db/tools",
        "postgresql://me:hun%0ater2@db/tools", "postgresql://db:hunter2/tools", "postgresql+psycopg://me:hunter2@db/x",
        "mysql://me:hunter2@db/tools", "postgresql://me:hun?ter2@db/tools",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_meant_so_is_refused_without_repeating_it(written: str) -> None:
    problem = find_problem(written)
    assert problem and "ter2" not in problem and "hun" not in problem


@pytest.mark.parametrize(
    "written",
    ["postgresql://me:p%40ss@[::1]:5432/t", "postgres://db", "postgresql:///t?host=/run/pg&port=1", "/a/b", "./a//b"],
)
def test_addresses_and_paths_are_taken_as_they_are(written: str) -> None:
    assert find_problem(written) == ""

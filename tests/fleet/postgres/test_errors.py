"""What PostgreSQL reports, in one line with the way out."""

import pytest

from foretool.storage.places import ServerAddress

psycopg = pytest.importorskip("psycopg")
from foretool.fleet.postgres.connecting import explain_error  # noqa: E402


@pytest.mark.parametrize(
    ("error", "is_closed", "temporary", "lost", "says"),
    [
        (psycopg.errors.LockNotAvailable("busy"), False, True, False, "nothing was written, try again"),
        (psycopg.errors.DiskFull("full"), False, True, False, "give the server more room"),
        (psycopg.errors.UndefinedTable("no table"), False, False, True, "restart the clients of this proxy"),
        (psycopg.errors.InsufficientPrivilege("no"), False, False, True, "grant the user"),
        (psycopg.errors.AdminShutdown("ends"), True, False, True, "check that the server runs"),
        (psycopg.OperationalError("gone\nreally"), True, False, True, "gone really; check that the server runs"),
        (psycopg.errors.DivisionByZero("1/0"), False, False, False, "1/0; nothing was written"),
    ],
)
def test_each_error_says_what_to_do(error: Exception, is_closed: bool, temporary: bool, lost: bool, says: str) -> None:
    found = explain_error(error, ServerAddress("postgresql://db/x"), is_closed=is_closed)
    assert (found.temporary, found.lost) == (temporary, lost)
    assert str(found).startswith("postgresql://db/x: ") and says in str(found) and "\n" not in str(found)

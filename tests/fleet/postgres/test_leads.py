"""One process at a time does a kind of work for a database, and the end of its connection lets the next one begin."""

from __future__ import annotations

import os

import pytest
from postgres import cut_off, new_schema

from foretool.storage.engine import StorageError
from foretool.storage.opening import open_serving_store, open_store

pytest.importorskip("psycopg")

pytestmark = pytest.mark.slow


def test_one_store_has_the_lead_until_it_lets_go(address: str) -> None:
    with open_store(address) as one, open_store(address) as two:
        lead, other = one.lead("learning"), two.lead("learning")
        assert lead.holder() is None
        assert lead.take() and lead.take() and lead.is_held
        lead.beat("dtdr: replaying")
        lead.beat("said too soon")
        holder = other.holder()
        assert holder is not None and (holder.pid, holder.doing) == (os.getpid(), "dtdr: replaying")
        assert not other.take() and not other.is_held
        assert not one.lead("learning").take()
        assert two.lead("embedding").take()
        lead.release()
        assert other.take() and not lead.is_held


def test_who_loses_the_connection_loses_the_lead(address: str) -> None:
    with open_serving_store(address) as one, open_store(address) as two:
        lead = one.lead("learning")
        assert lead.take()
        cut_off(one, address)
        with pytest.raises(StorageError):
            one.calls.recent(1)
        assert not lead.is_held
        with pytest.raises(StorageError, match="no connection"):
            lead.take()
        assert two.lead("learning").take()
        assert one.reopen() and not lead.take()
        lead.release()


def test_two_schemas_of_one_database_have_leads_of_their_own(address: str) -> None:
    elsewhere = new_schema()
    assert elsewhere
    with open_store(address) as one, open_store(elsewhere) as two:
        assert one.lead("learning").take() and two.lead("learning").take()


def test_what_is_done_is_cut_to_what_the_server_keeps(address: str) -> None:
    with open_store(address) as one, open_store(address) as two:
        lead = one.lead("learning")
        lead.take()
        lead.beat("größer " * 40)
        holder = two.lead("learning").holder()
        assert holder is not None and holder.doing.startswith("gr??er ")

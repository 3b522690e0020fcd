"""Ids read from the ends of lines, without decoding them."""

from __future__ import annotations

import pytest
from requirements import requirement

from foretool.server.protocol.cut_lines import read_id


@pytest.mark.parametrize(
    ("line", "ident"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', b"1"),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "ping"}', b"7"),
        (b'{"method":"ping","params":{},"jsonrpc":"2.0","id":12}', b"12"),
        (b'{"method":"ping","jsonrpc":"2.0","id":"a-1"}', b'"a-1"'),
        (b'{"method":"ping","id":3,"jsonrpc":"2.0"}', b"3"),
        (b'{"method":"ping", "id" : 4, "jsonrpc":"2.0"}', b"4"),
        (b'{"method":"x","id":5,"params":{"id":6}}', b"5"),
        (b'{"id":-2,"method":"x"}', b"-2"),
        (b'{"jsonrpc":"2.0","id":"\\u00e9","method":"x"}', b'"\\u00e9"'),
        ('{"jsonrpc":"2.0","id":"é","method":"x"}'.encode(), b'"\\u00e9"'),
        (b'{"method":"x","params":{"text":"\\"id\\":9"}}', None),
        (b'{"method":"x","params":{"text":"\\"id\\":9}"},"id":8}', b"8"),
        (b'{"method":"x","id":true}', None),
        (b'{"method":"x","id":1.5}', None),
        (b'[{"id":1}]', None),
        (b"{", None),
        (b"", None),
    ],
)
@requirement("windows:failover")
def test_the_id_of_a_message_is_that_of_its_outermost_object(line: bytes, ident: bytes | None) -> None:
    assert read_id(line, is_cut=False) == ident


def test_an_id_within_params_is_none_of_the_message() -> None:
    assert read_id(b'{"method":"x","params":{"deep":{"id":5}}}', is_cut=False) is None

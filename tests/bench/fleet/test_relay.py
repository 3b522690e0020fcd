"""The relay delivers everything, in order, and not before its time."""

from __future__ import annotations

import socket
import threading
import time

from bench.fleet.relay import relaying


def test_what_is_sent_arrives_whole_and_late() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(65_536):
                    connection.sendall(data)

        thread = threading.Thread(target=echo)
        thread.start()
        with relaying(f"postgresql://ann@127.0.0.1:{server.getsockname()[1]}/records?x=1", 0.02) as address:
            assert address.startswith("postgresql://ann@127.0.0.1:") and address.endswith("/records")
            port = int(address.rpartition(":")[2].partition("/")[0])
            with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
                sent = bytes(range(256)) * 1000
                begun = time.monotonic()
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
                got = b""
                while piece := client.recv(65_536):
                    got += piece
                assert time.monotonic() - begun >= 0.02 and got == sent
        thread.join(30)
        assert not thread.is_alive()

"""The fault server itself: it ends at once, whatever it is in the middle of, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from tests.support.rows import check_rows
from tests.support.servers.faultbehaviours import drip, endless, page, silent
from tests.support.servers.faultserver import FaultServer
from tests.support.waiting import PATIENCE_SECONDS


@check_rows(
    "behaviour",
    [page(b"up 1\n"), silent(), drip(b"x" * 1000, interval_seconds=10), endless(), endless(framing="close")],
    ids=["idle", "silent", "drip", "endless-chunked", "endless-close"],
)
def test_it_ends_with_clients_still_connected(behaviour):
    with contextlib.ExitStack() as stack:
        with FaultServer(behaviour) as server:
            for _ in range(3):
                client = stack.enter_context(
                    socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)
                )
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            server.wait_for_requests(3)
        assert [thread for thread in threading.enumerate() if thread.name.startswith("faultserver")] == []
        with pytest.raises(ConnectionRefusedError):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS))


def test_it_records_what_it_was_asked():
    with FaultServer({"/a": page(b"up 1\n")}) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as client:
            client.sendall(b"GET /a?b=c HTTP/1.1\r\nX-One: 1\r\n\r\nGET /none HTTP/1.1\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            answer = b""
            while data := client.recv(4096):
                answer += data
        first, second = server.requests
    assert answer.startswith(b"HTTP/1.1 200 Reason\r\n")
    assert b"HTTP/1.1 404 Reason\r\n" in answer
    assert (first.method, first.target, first.path, first.headers) == ("GET", "/a?b=c", "/a", {"x-one": "1"})
    assert second.path == "/none"
    assert server.connections == 1

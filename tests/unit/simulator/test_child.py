"""A server program as a child process: the port that it gets."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from llm_serving_simulator.programs import Child, ChildError

pytestmark = pytest.mark.process

SERVER = """
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer.allow_reuse_address = False
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""


def test_a_port_that_another_program_takes_meanwhile_is_given_up_for_another() -> None:
    asked: list[int] = []
    with ExitStack() as stack:

        def prepare(folder: Path, address: str) -> list[str]:
            asked.append(int(address.rpartition(":")[2]))
            if len(asked) == 1:  # between the look for a free port and the program's own bind
                stack.enter_context(socket.create_server(("127.0.0.1", asked[0])))
            return [sys.executable, "-c", SERVER, str(asked[-1])]

        child = Child("server", prepare)
        stack.callback(child.close)
        assert child.url == f"http://127.0.0.1:{asked[1]}"
        assert len(set(asked)) == 2


def test_what_takes_each_port_in_turn_is_told_at_the_end() -> None:
    with ExitStack() as stack:

        def prepare(folder: Path, address: str) -> list[str]:
            stack.enter_context(socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))))
            return [sys.executable, "-c", SERVER, address.rpartition(":")[2]]

        with pytest.raises(ChildError, match="Address already in use"):
            Child("server", prepare)

"""What a connection does, step by step: a handshake where there is TLS, a request, its answer, the next request."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from llm_serving_exporter.web.clients import Client, Doing
from llm_serving_exporter.web.connection import Answer, refuse_connection
from llm_serving_exporter.web.exchange import Response, plain
from llm_serving_exporter.web.framing import Raw
from llm_serving_exporter.web.guard import Guard
from llm_serving_exporter.web.guests import Guests
from llm_serving_exporter.web.limits import Limits
from llm_serving_exporter.web.refusals import Reason, Refusals

OVERLOAD = plain(503, "Too many connections at once: try again in a few seconds.")
_PLAIN_HTTP = plain(400, "This server speaks HTTPS: write https:// in place of http://.")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Conversations:
    """Used by the loop's thread alone. `submit(client, raw)`: has a request answered; False where there is no room for it."""

    def __init__(
        self,
        guests: Guests,
        limits: Limits,
        guard: Guard | None,
        submit: Callable[[Client, Raw], bool],
        refusals: Refusals,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._guests, self._limits, self._guard, self._submit = guests, limits, guard, submit
        self._refusals, self._is_stopping = refusals, is_stopping

    def go_on(self, client: Client) -> None:
        """Does what a connection can do now. Raises OSError."""
        match client.doing:
            case Doing.HELLO:
                self._begin_tls(client)
            case Doing.HANDSHAKE:
                self._go_on_with_tls(client)
            case Doing.WAITING | Doing.READING:
                client.read()
                self._look_for_request(client)
            case Doing.WRITING:
                self._go_on_writing(client)
            case Doing.DRAINING:
                if client.drain():
                    self._guests.close(client)

    def _begin_tls(self, client: Client) -> None:
        guard, is_tls = self._guard, client.peek_is_tls()
        assert guard is not None
        if is_tls is None:
            return
        if not is_tls:
            self.refuse(client, _PLAIN_HTTP)
            return
        self._guests.watch(client, 0)
        client.socket = guard.context().wrap_socket(client.socket, server_side=True, do_handshake_on_connect=False)
        self._guests.put_to(client, Doing.HANDSHAKE, self._limits.head_seconds)
        self._go_on_with_tls(client)

    def _go_on_with_tls(self, client: Client) -> None:
        guard = self._guard
        assert guard is not None
        assert isinstance(client.socket, ssl.SSLSocket)
        if not client.shake_hands():
            self._guests.put_to(client, Doing.HANDSHAKE, None)
        elif not guard.lets_in(client.socket):
            self._guests.close(client)
        else:
            self._guests.put_to(client, Doing.WAITING, self._limits.idle_seconds)
            client.read()
            self._look_for_request(client)

    def _look_for_request(self, client: Client) -> None:
        raw = client.framing.take_request()
        if raw is not None:
            self._guests.put_to(client, Doing.WORKING, float("inf"))
            if not self._submit(client, raw):
                self._refusals.add(Reason.CROWDED, client.peer)
                self.refuse(client, OVERLOAD)
        elif client.has_ended:
            self._guests.close(client)
        else:
            if client.framing.take_continue():
                client.say(_CONTINUE)
            if not client.framing.has_begun:
                self._guests.put_to(
                    client, Doing.WAITING, None if client.doing is Doing.WAITING else self._limits.idle_seconds
                )
            elif client.doing is Doing.READING:
                self._guests.put_to(client, Doing.READING, None)
            else:
                self._guests.put_to(client, Doing.READING, self._limits.head_seconds)

    def refuse(self, client: Client, response: Response) -> None:
        """Answers a client whose request is not read, and ends. Raises OSError."""
        self.begin_answer(client, refuse_connection(response), self._limits.refusal_seconds)

    def begin_answer(
        self, client: Client, answer: Answer, seconds: float | None = None, *, earns: bool = False
    ) -> None:
        """Begins to write an answer; `seconds` for it, where not the usual ones. `earns`: it is what was asked for. Raises OSError."""
        client.output, client.earns = memoryview(answer.data), earns
        client.rest, client.rest_bytes = answer.rest, answer.rest_bytes
        client.closes, client.drains = answer.closes or self._is_stopping(), answer.drains
        self._guests.unread_bytes += client.unread_bytes
        self._guests.put_to(client, Doing.WRITING, self._limits.write_seconds if seconds is None else seconds)
        self._go_on_writing(client)
        if self._guests.unread_bytes > self._limits.unread_bytes:
            self._cut_slowest_readers()

    def _go_on_writing(self, client: Client) -> None:
        before = client.unread_bytes
        try:
            is_over = client.write()
        finally:
            self._guests.unread_bytes += client.unread_bytes - before
        if not is_over:
            return
        client.hurries |= client.framing.has_begun
        client.has_earned = not client.hurries and (client.has_earned or client.earns)
        if client.drains:
            client.end_writing()
            self._guests.put_to(client, Doing.DRAINING, self._limits.refusal_seconds)
        elif client.closes:
            self._guests.close(client)
        else:
            self._guests.put_to(client, Doing.WAITING, self._limits.idle_seconds)
            if client.has_more():
                client.read()
            self._look_for_request(client)

    def _cut_slowest_readers(self) -> None:
        # but for the last of them: one page may be larger than all that is allowed together
        for client in self._guests.choose_readers()[:-1]:
            self._refusals.add(Reason.UNREAD, client.peer)
            self._guests.close(client)
            if self._guests.unread_bytes <= self._limits.unread_bytes:
                return

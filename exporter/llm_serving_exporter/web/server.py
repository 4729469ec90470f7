"""The web server: pages by path over HTTP/1.1, with TLS and basic auth where a web config file says so.

One thread accepts, one thread serves each connection, all of them bounded in number and time (`connection.Limits`).
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from llm_serving_exporter.config.types import WebConfig
from llm_serving_exporter.web.connection import Connection, Limits, answer_and_close, handshake, is_tls
from llm_serving_exporter.web.exchange import Handler, Request, Response, plain
from llm_serving_exporter.web.guard import Guard
from llm_serving_exporter.web.listen import describe_listener, listen_on_all, url_of

__all__ = ["Handler", "Limits", "Request", "Response", "WebServer"]

STOP_SECONDS = 2.0
# accept() fails at once again and again while file descriptors are used up: not a reason to spin
ACCEPT_PAUSE_SECONDS = 0.2
_OVERLOAD = plain(503, "Too many connections at once: try again in a few seconds.")
_PLAIN_HTTP = plain(400, "This server speaks HTTPS: write https:// in place of http://.")


class WebServer:
    """Binds when made; `start` serves in the background; `stop` ends every connection and thread within two seconds.

    `routes`: path -> method -> handler; HEAD is answered from GET. A handler runs in its connection's thread; one that
    raises is logged and answered with 500. Raises ListenError for an address that cannot be had, ConfigError for the web config file.
    """

    def __init__(
        self,
        web: WebConfig,
        routes: Mapping[str, Mapping[str, Handler]],
        *,
        limits: Limits | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        self._routes = routes
        self._limits = limits or Limits()
        self._log = log or logging.getLogger("llm_serving_exporter.web")
        self._guard = Guard(web.config_file, self._log) if web.config_file is not None else None
        self._lock = threading.Lock()
        self._threads: dict[_Peer, threading.Thread] = {}
        self._idle: dict[_Peer, None] = {}  # in the order in which they became idle
        self._ending: list[threading.Thread] = []  # done with their connections, perhaps not yet with their last line
        self._refusing = 0
        self._stopping = threading.Event()
        self._listeners = listen_on_all(web.listen_addresses)
        scheme = "https" if self._guard and self._guard.tls else "http"
        self._urls = tuple(url_of(listener, scheme) for listener in self._listeners)
        self._places = tuple(describe_listener(listener, scheme) for listener in self._listeners)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept_all, name="web-accept", daemon=True)

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the server, with the port really bound: the first of `urls`."""
        return self._urls[0]

    @property
    def urls(self) -> tuple[str, ...]:
        """The same for each address that it listens on."""
        return self._urls

    @property
    def places(self) -> tuple[str, ...]:
        """Where it listens, one line for each address, for a person."""
        return self._places

    def start(self) -> None:
        """Serves from now on."""
        self._acceptor.start()

    def stop(self) -> None:
        """Accepts no more, lets answers under way end for a moment, then ends every connection. Safe to call twice."""
        deadline = time.monotonic() + STOP_SECONDS
        if not self._stopping.is_set():
            self._stopping.set()
            self._wake_writer.close()
        if self._acceptor.ident is not None:
            self._acceptor.join(STOP_SECONDS)
        for listener in self._listeners:
            listener.close()
        self._wake_reader.close()
        with self._lock:
            waiting, threads = list(self._idle), [*self._threads.values(), *self._ending]
        for peer in waiting:
            peer.cut()
        self._join(threads, deadline - STOP_SECONDS / 2)
        with self._lock:
            busy = list(self._threads)
        for peer in busy:
            peer.cut()
        self._join(threads, deadline)

    @staticmethod
    def _join(threads: list[threading.Thread], deadline: float) -> None:
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join(max(0.0, deadline - time.monotonic()))

    # --- connections ----------------------------------------------------------------------------------------------

    def _accept_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            for listener in self._listeners:
                selector.register(listener, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while not self._stopping.is_set():
                ready = selector.select()
                if self._stopping.is_set():
                    return
                for key, _ in ready:
                    self._accept(key.fileobj)

    def _accept(self, listener: object) -> None:
        assert isinstance(listener, socket.socket)
        try:
            source, _ = listener.accept()
        except BlockingIOError:
            return  # the client was gone again
        except OSError as error:
            self._log.warning("a connection could not be accepted: %s", error)
            self._stopping.wait(ACCEPT_PAUSE_SECONDS)
            return
        self._admit(source)

    def _admit(self, source: socket.socket) -> None:
        """Gives a connection its thread. Where there are too many, the one idle for longest makes room; else a short 503."""
        peer = _Peer(source)
        with self._lock:
            self._ending = [thread for thread in self._ending if thread.is_alive()]
            known = len(self._threads)
            if known >= self._limits.connections + self._limits.refusals:
                source.close()
                return
            serve = known - self._refusing < self._limits.connections
            if not serve and self._idle:
                oldest = next(iter(self._idle))
                del self._idle[oldest]
                oldest.cut()
                serve = True
            thread = threading.Thread(
                target=self._serve if serve else self._turn_away, args=(peer,), name="web-connection", daemon=True
            )
            self._threads[peer] = thread
            self._refusing += not serve
        try:
            thread.start()
        except RuntimeError as error:  # no more threads to be had
            self._log.warning("a connection could not be served: %s", error)
            self._forget(peer, refused=not serve)

    def _forget(self, peer: _Peer, *, refused: bool) -> None:
        with self._lock:
            self._idle.pop(peer, None)
            self._ending.append(self._threads.pop(peer))
            self._refusing -= refused
        peer.socket.close()

    def _turn_away(self, peer: _Peer) -> None:
        try:
            if self._guard is None or not self._guard.tls:
                answer_and_close(peer.socket, self._limits, _OVERLOAD)
        finally:
            self._forget(peer, refused=True)

    def _serve(self, peer: _Peer) -> None:
        guard = self._guard
        try:
            # headers and body go out in one piece, nothing is to be waited for
            peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if guard is not None and guard.tls and not self._secured(peer, guard):
                return
            Connection(
                peer.socket,
                self._respond,
                self._limits,
                lambda idle: self._mark(peer, idle=idle),
                self._stopping.is_set,
                guard.headers() if guard is not None else (),
            )
        except OSError as error:
            self._log.debug("a connection ended: %s", error)
        except Exception:  # noqa: BLE001  # logged with its traceback; one connection must not end the server
            self._log.exception("a connection failed; this is a bug, please report it")
        finally:
            self._forget(peer, refused=False)

    def _secured(self, peer: _Peer, guard: Guard) -> bool:
        """Puts TLS on a connection. False where the client speaks plain HTTP, which is answered, or is not let in."""
        self._mark(peer, idle=True)
        spoken = is_tls(peer.socket, self._limits.idle_seconds)
        self._mark(peer, idle=False)
        if not spoken:
            answer_and_close(peer.socket, self._limits, _PLAIN_HTTP)
            return False
        peer.socket = handshake(peer.socket, guard.context(), self._limits.head_seconds)
        return guard.lets_in(peer.socket)

    def _mark(self, peer: _Peer, *, idle: bool) -> None:
        with self._lock:
            if not idle:
                self._idle.pop(peer, None)
            elif self._stopping.is_set():
                peer.cut()
            else:
                self._idle[peer] = None

    # --- requests -------------------------------------------------------------------------------------------------

    def _respond(self, request: Request) -> Response:
        """The page's answer, or why there is none. Never raises."""
        try:
            if self._guard is not None:
                denied = self._guard.denied(request)
                if denied is not None:
                    return denied
            methods = self._routes.get(request.path)
            if methods is None:
                return plain(404, "There is no such page here; / lists them.")
            handler = methods.get("GET" if request.method == "HEAD" else request.method)
            if handler is None:
                allowed = sorted({*methods, *(("HEAD",) if "GET" in methods else ())})
                return plain(405, f"This page takes {' and '.join(allowed)} only.", ("Allow", ", ".join(allowed)))
            return handler(request)
        except Exception:  # noqa: BLE001  # logged with its traceback; a page's fault is that page's alone
            self._log.exception(
                "the page %s could not be made; this is a bug, please report it", ascii(request.path[:200])
            )
            return plain(500, "This page could not be made; the exporter's log has the cause.")


class _Peer:
    """An open connection; `socket` changes once TLS is on. Compared by identity."""

    __slots__ = ("socket",)

    def __init__(self, source: socket.socket) -> None:
        self.socket = source

    def cut(self) -> None:
        """Ends the connection under its thread's feet, which then finds it ended."""
        with suppress(OSError):
            # not SSLSocket.shutdown: that drops the TLS state while its thread still reads
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

"""The web server: pages by path over HTTP/1.1, with TLS and basic auth where a web config file says so.

One thread waits for all clients (`loop`); a whole request is answered in one of a few threads (`workers`); passwords are checked one at a
time beside them (`passwords`). All of it is bounded (`limits`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from functools import partial

from llm_serving_exporter.files.descriptors import read_descriptor_limit
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.config import WebConfig
from llm_serving_exporter.web.browsers import refuse_script
from llm_serving_exporter.web.clients import Client
from llm_serving_exporter.web.connection import answer_request
from llm_serving_exporter.web.credentials import EarnedCredentials
from llm_serving_exporter.web.exchange import Handler, Request, Response, plain
from llm_serving_exporter.web.framing import Raw
from llm_serving_exporter.web.guard import DENIED, Guard
from llm_serving_exporter.web.limits import Limits, fit_connections
from llm_serving_exporter.web.listen import describe_listener, listen_on_all, url_of
from llm_serving_exporter.web.loop import Loop
from llm_serving_exporter.web.passwords import PasswordLane, Waiting
from llm_serving_exporter.web.refusals import Reason, Refusals
from llm_serving_exporter.web.workers import Workers

__all__ = ["Handler", "Limits", "Request", "Response", "WebServer"]

STOP_SECONDS = 2.0
_OK = 200
_LATER = plain(429, "Too many passwords are being checked: try again in a few seconds.", ("Retry-After", "5"))


class WebServer:
    """Binds when made; `start` serves in the background; `stop` ends every connection and thread within two seconds.

    `routes`: path -> method -> handler; HEAD is answered from GET. A handler runs in a thread of its own among a few; one that
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
        given = limits or Limits()
        self._limits = replace(given, connections=fit_connections(given, read_descriptor_limit()))
        self._log = log or logging.getLogger("llm_serving_exporter.web")
        self._guard = Guard(web.config_file, self._log) if web.config_file is not None else None
        self.refusals = Refusals(self._log)
        self._earned = EarnedCredentials()
        self._workers = Workers(self._limits.workers, self._limits.queued, "web-connection", self._log)
        # so that a flood of wrong passwords costs one core at most
        self._checkers = Workers(1, self._limits.password_checks, "web-passwords", self._log)
        self._passwords = PasswordLane(self._checkers, self._limits.password_checks)
        self._listeners = listen_on_all(web.listen_addresses)
        scheme = "https" if self._guard and self._guard.tls else "http"
        self._urls = tuple(url_of(listener, scheme) for listener in self._listeners)
        self._places = tuple(describe_listener(listener, scheme) for listener in self._listeners)
        self._loop = Loop(self._listeners, self._limits, self._guard, self._submit, self.refusals, self._log)
        self._thread = threading.Thread(target=self._loop.run, name="web-loop", daemon=True)

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

    @property
    def certificate_expiry(self) -> float | None:
        """When its certificate expires, in Unix seconds; None without TLS, and where the certificate does not say it readably."""
        return self._guard.expiry if self._guard is not None else None

    def start(self) -> None:
        """Serves from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Accepts no more, lets answers under way end for a moment, then ends every connection. Safe to call twice."""
        deadline = time.monotonic() + STOP_SECONDS
        self._loop.stop()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS / 2)
            self._loop.cut()
            self._thread.join(max(0.0, deadline - time.monotonic()))
        else:
            self._loop.close()
        for listener in self._listeners:
            listener.close()
        for thread in (*self._workers.stop(), *self._checkers.stop()):
            thread.join(max(0.0, deadline - time.monotonic()))

    # --- requests: by the loop, then by a worker ---------------------------------------------------------------------

    def _submit(self, client: Client, raw: Raw) -> bool:
        first = not client.hurries and (client.has_earned or self._earned.has(raw.head))
        client.waits_for_thread = not first
        return self._workers.submit(partial(self._serve, client, raw, None), first=first)

    def _serve(self, client: Client, raw: Raw, allowed: bool | None) -> None:
        """Answers a request. `allowed`: what came of the check of its password; None before it."""
        if client.is_closed:  # it made room
            return
        client.waits_for_thread = False
        waits: list[Request] = []

        def respond(request: Request) -> Response:
            found = self._respond(request, client.peer, allowed)
            if found is None:
                waits.append(request)
            return found or DENIED

        headers = self._guard.headers() if self._guard is not None else ()
        answer = answer_request(raw, respond, self._limits, headers, closes=self._loop.stopping.is_set)
        if waits:
            check = partial(self._check_password, client, raw, waits[0])
            refuse = partial(self._refuse, client, raw, headers)
            client.waits_for_check = True
            self._passwords.submit(client.peer, Waiting(check, refuse))
            return
        earned = answer.status == _OK
        if earned and self._guard is not None:
            self._earned.add(raw.head)
        self._loop.complete(client, answer, earned=earned)

    def _check_password(self, client: Client, raw: Raw, request: Request) -> None:
        assert self._guard is not None
        if client.is_closed:  # it made room
            return
        allowed = self._guard.check_password(request)
        client.waits_for_check, client.waits_for_thread = False, not allowed
        if not self._workers.submit(partial(self._serve, client, raw, allowed), first=allowed):
            self._refuse(client, raw, ())

    def _refuse(self, client: Client, raw: Raw, headers: tuple[tuple[str, str], ...]) -> None:
        self.refusals.add(Reason.PASSWORD, client.peer)
        answer = answer_request(raw, lambda _request: _LATER, self._limits, headers, closes=lambda: True)
        self._loop.complete(client, answer, earned=False)

    def _respond(self, request: Request, peer: str, allowed: bool | None) -> Response | None:
        """The page's answer, or why there is none; None where a password has to be checked first. Never raises."""
        try:
            if self._guard is not None:
                may = allowed if allowed is not None else self._guard.judge(request)
                if may is None:
                    return None
                if not may:
                    self.refusals.add(Reason.DENIED, peer)
                    return DENIED
            refused = refuse_script(request)
            if refused is not None:
                self.refusals.add(Reason.BROWSER, peer)
                return refused
            methods = self._routes.get(request.path)
            if methods is None:
                return plain(404, "There is no such page here; / lists them.")
            handler = methods.get("GET" if request.method == "HEAD" else request.method)
            if handler is None:
                named = sorted({*methods, *(("HEAD",) if "GET" in methods else ())})
                return plain(405, f"This page takes {' and '.join(named)} only.", ("Allow", ", ".join(named)))
            return handler(request)
        except Exception:  # noqa: BLE001  # logged with its traceback; a page's fault is that page's alone
            self._log.exception(
                "the page %s could not be made; this is a bug, please report it", ascii(request.path[:200])
            )
            return plain(500, "This page could not be made; the exporter's log has the cause.")

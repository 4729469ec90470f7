"""The web server: pages by path over HTTP/1.1, with TLS and basic auth where a web config file says so.

One thread waits for all clients (`connections`); a whole request is answered in one of a few threads, and passwords are checked one at a
time beside them (`workers`). All of it is bounded (`crowd.Limits`).
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
from llm_serving_exporter.web.connections import Client, Connections
from llm_serving_exporter.web.crowd import Limits, Reason, Refusals, fit_connections
from llm_serving_exporter.web.exchange import Handler, Incoming, Request, Response, make_answer, plain
from llm_serving_exporter.web.guard import DENIED, Guard
from llm_serving_exporter.web.listen import describe_listener, listen_on_all, url_of
from llm_serving_exporter.web.workers import PasswordLane, Waiting, Workers

__all__ = ["Handler", "Limits", "Request", "Response", "WebServer"]

STOP_SECONDS = 2.0
_OK = 200
_LATER = plain(429, "Too many passwords are being checked: try again in a few seconds.", ("Retry-After", "5"))
_SAFE_METHODS = ("GET", "HEAD")


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
        limits = replace(given, connections=fit_connections(given, read_descriptor_limit()))
        self._log = log or logging.getLogger("llm_serving_exporter.web")
        self._guard = Guard(web.config_file, self._log) if web.config_file is not None else None
        self.refusals = Refusals(self._log)
        self._workers = Workers(limits.workers, limits.queued, "web-connection", self._log)
        # so that a flood of wrong passwords costs one core at most
        self._checkers = Workers(1, limits.password_checks, "web-passwords", self._log)
        self._passwords = PasswordLane(self._checkers, limits.password_checks)
        self._listeners = listen_on_all(web.listen_addresses)
        scheme = "https" if self._guard and self._guard.tls else "http"
        # where a client on this machine reaches each address, with the port really bound
        self.urls = tuple(url_of(listener, scheme) for listener in self._listeners)
        # where it listens, one line for each address, for a person
        self.places = tuple(describe_listener(listener, scheme) for listener in self._listeners)
        self._connections = Connections(self._listeners, limits, self._guard, self._submit, self.refusals, self._log)
        self._thread = threading.Thread(target=self._connections.run, name="web-loop", daemon=True)

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the server, with the port really bound: the first of `urls`."""
        return self.urls[0]

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
        self._connections.stop()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS / 2)
            self._connections.cut()
            self._thread.join(max(0.0, deadline - time.monotonic()))
        else:
            self._connections.close()
        for listener in self._listeners:
            listener.close()
        for thread in (*self._workers.stop(), *self._checkers.stop()):
            thread.join(max(0.0, deadline - time.monotonic()))

    # --- requests: by the loop, then by a worker ---------------------------------------------------------------------

    def _submit(self, client: Client, incoming: Incoming) -> bool:
        # who has yet to show that it waits for its answers waits for those who have
        guard, request = self._guard, incoming.request
        first = not client.hurries and (client.has_earned or (guard is not None and guard.remembers(request)))
        client.waits_for_thread = not first
        return self._workers.submit(partial(self._serve, client, incoming, None), first=first)

    def _serve(self, client: Client, incoming: Incoming, allowed: bool | None) -> None:
        """Answers a request. `allowed`: what came of the check of its password; None before it."""
        if client.is_closed:  # it made room
            return
        client.waits_for_thread = False
        response = incoming.refusal or self._respond(incoming.request, client.peer, allowed)
        if response is not None:
            self._complete(client, incoming, response)
            return
        client.waits_for_check = True
        self._passwords.submit(
            client.peer,
            Waiting(partial(self._check_password, client, incoming), partial(self._refuse, client, incoming)),
        )

    def _complete(self, client: Client, incoming: Incoming, response: Response, *, closes: bool = False) -> None:
        headers = self._guard.headers() if self._guard is not None else ()
        answer = make_answer(incoming, response, headers, closes=closes or self._connections.stopping.is_set())
        self._connections.complete(client, answer, earned=answer.status == _OK)

    def _check_password(self, client: Client, incoming: Incoming) -> None:
        assert self._guard is not None
        if client.is_closed:  # it made room
            return
        allowed = self._guard.check_password(incoming.request)
        client.waits_for_check, client.waits_for_thread = False, not allowed
        if not self._workers.submit(partial(self._serve, client, incoming, allowed), first=allowed):
            self._refuse(client, incoming)

    def _refuse(self, client: Client, incoming: Incoming) -> None:
        self.refusals.add(Reason.PASSWORD, client.peer)
        self._complete(client, incoming, _LATER, closes=True)

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


def refuse_script(request: Request) -> Response | None:
    """The answer to what a script or a form of some page asks for; None for everything else.

    Browsers say themselves what a request is for (Fetch Metadata, https://www.w3.org/TR/fetch-metadata/) and which page sends it (Origin).
    Programs that scrape say neither, and are asked for nothing. Pages of the exporter have no scripts and no forms. Where the name of
    another site has been pointed here (DNS rebinding), the scripts of that site look as if they were ours, so that it does not matter whose
    they say they are, nor which name is in Host: an exporter is reached by many.
    """
    is_script = request.headers.get("sec-fetch-dest", "").lower() == "empty" or "origin" in request.headers
    is_browser = is_script or "sec-fetch-site" in request.headers
    if is_browser and request.method not in _SAFE_METHODS:
        return plain(403, "A browser asks for this: no page of the exporter does. Use a program, such as curl.")
    if is_script:
        return plain(
            403,
            "A script in a browser asks for this: pages of the exporter have none. Open it as a page, or use a program.",
        )
    return None

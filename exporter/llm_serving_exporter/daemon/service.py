"""Daemon and web server together: what one process serves."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, ProcessCollector

from llm_serving_exporter import __version__
from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.daemon.cost_earlier import Clocks
from llm_serving_exporter.daemon.cost_keeper import CostKeeper
from llm_serving_exporter.daemon.jobs import Daemon
from llm_serving_exporter.daemon.otlp_job import OtlpJob
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import write_page
from llm_serving_exporter.gpus.attribution import gpu_interval
from llm_serving_exporter.gpus.node_gpus import open_gpus
from llm_serving_exporter.gpus.processes import find_node_name
from llm_serving_exporter.gpus.source import GpuSource
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.settings.config import Config, effective
from llm_serving_exporter.settings.discovery import choose_mode
from llm_serving_exporter.state.install_time import read_or_write_install_time
from llm_serving_exporter.web.pages.debug import answer_debug_targets, answer_ready
from llm_serving_exporter.web.pages.landing import render_landing
from llm_serving_exporter.web.server import Handler, Request, Response, WebServer

log = logging.getLogger("llm_serving_exporter.service")

_TEXT = "text/plain; charset=utf-8"


class Service:
    """Binds the web server, then reads targets and serves. Raises ListenError or ConfigError (web config file) when it is made.

    `monotonic`: the clock that rates and ages go by, `speed`: its seconds to an elapsed one; a simulated fleet that is faster than time
    brings its own.
    """

    def __init__(
        self,
        config: Config,
        load: Callable[[], Config],
        gpu_source: Callable[[Config], GpuSource | None] = open_gpus,
        environ: Mapping[str, str] = os.environ,
        *,
        monotonic: Callable[[], float] = elapsed_seconds,
        speed: float = 1.0,
    ) -> None:
        self._monotonic = monotonic
        self.daemon = Daemon(
            config,
            load,
            gpu_source,
            monotonic=monotonic,
            speed=speed,
            take=lambda config: self._otlp.change(config.otlp),
        )
        self._cost = CostKeeper(config, self.daemon.costs, self.daemon.store.view, clocks=Clocks(monotonic))
        self._node, self._environ = find_node_name(environ), environ
        self._installed = read_or_write_install_time(config.state_file, time.time())
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ViewCollector(self._cost.hold_back, self._setup, monotonic))
        ProcessCollector(registry=self._registry)
        self._pages = [("Runbooks", "/runbooks/")] if config.web.runbooks else []
        self._web = WebServer(config.web, self._routes(config))
        self._otlp = OtlpJob(self._registry.collect, self._list_fresh, urlsplit(self._web.url).port)
        self._otlp.change(config.otlp)

    @property
    def url(self) -> str:
        """Where the web server listens, by the first of its addresses."""
        return self._web.url

    def start(self) -> None:
        """Starts the jobs, then serves: the first page already has every configured target, its counters at 0."""
        self._cost.start()  # targets go on from what is kept, so that it comes before them
        self.daemon.start()
        self._web.start()
        for place in self._web.places:
            log.info("listening on %s", place)
        self._otlp.start()
        # modules and tables live as long as the process: the collector need not go through them again and again
        gc.freeze()

    def close(self) -> None:
        """Stops serving and starting jobs."""
        self._otlp.close()
        self._web.stop()
        self.daemon.stop()
        self._cost.stop()

    def _setup(self) -> Setup:
        config = self.daemon.config
        # a pass may come late by an interval; three without one are a hanging driver, as for targets
        gpu_stale = max(config.stale_after_seconds, 3 * gpu_interval(config))
        return Setup(
            config.stale_after_seconds,
            gpu_stale,
            self._node,
            config.expected_replicas,
            self._installed,
            shard=config.shard,
            mode=choose_mode(config, self._environ),
            prices=config.prices,
            attribution=config.attribution,
            target_labels=config.target_labels,
            all_buckets=config.all_buckets,
            otlp=self._otlp.report(),
            storage=self._cost.report(),
            web_refusals=self._web.refusals.counts(),
            web_certificate_expiry=self._web.certificate_expiry,
        )

    def _list_fresh(self) -> list[TargetReading]:
        now, oldest = self._monotonic(), self.daemon.config.stale_after_seconds
        return [one for one in self.daemon.store.view().targets if one.page.is_fresh(now, oldest)]

    def _routes(self, config: Config) -> dict[str, Mapping[str, Handler]]:
        reload = self._reload if config.web.enable_lifecycle else _no_lifecycle
        return {
            **(_runbook_routes() if config.web.runbooks else {}),
            config.web.telemetry_path: {"GET": self._metrics},
            "/": {"GET": self._landing},
            "/-/healthy": {"GET": lambda _request: Response(200, _TEXT, b"llm-serving-exporter is healthy.\n")},
            "/-/ready": {"GET": lambda _request: answer_ready(self.daemon.store.view())},
            "/-/reload": {"POST": reload, "PUT": reload},
            "/debug/targets": {"GET": self._debug},
        }

    def _metrics(self, request: Request) -> Response:
        body, content_type = write_page(self._registry, request.headers.get("accept", ""))
        return Response(200, content_type, body)

    def _landing(self, request: Request) -> Response:
        config = self.daemon.config
        body = render_landing(
            self.daemon.store.view(),
            now_unix=time.time(),
            now_monotonic=self._monotonic(),
            stale_after_seconds=config.stale_after_seconds,
            version=__version__,
            telemetry_path=config.web.telemetry_path,
            links=self._pages,
            only=parse_qs(request.query).get("target", [""])[0],
        )
        return Response(200, "text/html; charset=utf-8", body)

    def _debug(self, _request: Request) -> Response:
        return answer_debug_targets(self.daemon.store.view(), effective(self.daemon.config))

    def _reload(self, _request: Request) -> Response:
        error = self.daemon.reload()
        if error is not None:
            return Response(500, _TEXT, f"configuration not reloaded, the running one stays:\n{error}\n".encode())
        waiting = "; the web settings changed and wait for the next start" if self.daemon.web_waits else ""
        return Response(200, _TEXT, f"configuration reloaded{waiting}.\n".encode())


def _runbook_routes() -> Mapping[str, Mapping[str, Handler]]:
    # most exporters serve none
    from llm_serving_exporter.web.pages.runbooks import make_routes

    return make_routes()


def _no_lifecycle(_request: Request) -> Response:
    return Response(403, _TEXT, b"Lifecycle API is not enabled: start with --web.enable-lifecycle.\n")

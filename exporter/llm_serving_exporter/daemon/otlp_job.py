"""Sends all series over OTLP as the configuration in force says: begins, changes and ends with it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric as Family

from llm_serving_exporter import __version__
from llm_serving_exporter.model.reading import OtlpReport, TargetReading
from llm_serving_exporter.settings.config import OtlpConfig

if TYPE_CHECKING:
    from llm_serving_exporter.otlp.sender import Sender


class OtlpJob:
    """Nothing, or one sender of what `collect` yields.

    `targets`: those whose last pages may be shown. `port`: of the exporter's page, which tells exporters of one host apart.
    """

    def __init__(
        self, collect: Callable[[], Iterable[Family]], targets: Callable[[], Iterable[TargetReading]], port: int | None
    ) -> None:
        self._collect, self._targets = collect, targets
        # pods on one node differ by their host name, exporters on one host by their port
        self._resource = {
            "service.name": "llm-serving-exporter",
            "service.instance.id": f"{socket.gethostname()}:{port}",
            "service.version": __version__,
        }
        # reloads come from the web server and from a signal
        self._lock = threading.Lock()
        self._started = False
        self._config: OtlpConfig | None = None
        self._sender: Sender | None = None

    def start(self) -> None:
        """Begins to send, where that is configured."""
        with self._lock:
            self._started = True
            if self._sender is not None:
                self._sender.start()

    def change(self, config: OtlpConfig | None) -> None:
        """Sends as `config` says from now on; None: nothing.

        Raises ConfigError for settings that contradict each other, and then goes on as before.
        """
        with self._lock:
            if config == self._config:
                return
            if config is None:
                self._end()
            elif self._sender is not None:
                self._sender.change(config)
            else:
                self._sender = self._make(config)
            self._config = config

    def close(self) -> None:
        """Ends it within about a second."""
        with self._lock:
            self._end()

    def report(self) -> OtlpReport | None:
        """How it goes; None: nothing is sent."""
        sender = self._sender
        return sender.report() if sender is not None else None

    def _end(self) -> None:
        if self._sender is not None:
            self._sender.close()
        self._sender = None

    def _make(self, config: OtlpConfig) -> Sender:
        # its messages come with an extra
        from llm_serving_exporter.otlp.sender import Sender

        sender = Sender(config, self._collect, self._resource.items(), targets=self._targets)
        if self._started:
            sender.start()
        return sender

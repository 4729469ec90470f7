"""Where and how the web server listens, as configured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Where the web server listens and how."""

    # "host:port" or ":port" (every interface); all of them are served
    listen_addresses: tuple[str, ...] = (":10077",)
    # path of the metrics page
    telemetry_path: str = "/metrics"
    # whether a POST to /-/reload reloads the configuration
    enable_lifecycle: bool = False
    # exporter-toolkit web config file (TLS, basic auth); None = plain HTTP
    config_file: str | None = None

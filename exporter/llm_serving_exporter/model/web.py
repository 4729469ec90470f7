"""Where and how the web server listens, as configured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Where and how to listen. `config_file`: exporter-toolkit web config file (TLS, basic auth), None = plain HTTP."""

    listen_address: str = ":10077"
    telemetry_path: str = "/metrics"
    enable_lifecycle: bool = False
    config_file: str | None = None

"""Servers beside the targets, asked with the credentials, headers and TLS of a target: `dcgm:`, `device_exporter:`, `otlp:`."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass

from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.checks import Placed, refuse_timeout, target_warnings, unused_warnings
from llm_serving_exporter.settings.config import Config, DcgmConfig, OtlpConfig, ScrapeConfig
from llm_serving_exporter.settings.http import Access
from llm_serving_exporter.settings.identity import read_texts_by_name
from llm_serving_exporter.settings.keys import key
from llm_serving_exporter.settings.kinds import URL, ServerAddress
from llm_serving_exporter.settings.options import ConfigFile, Context, Settings, build_section, option, read_section
from llm_serving_exporter.settings.problems import Node, Place, shown
from llm_serving_exporter.settings.targets import build_server

MOST_ATTRIBUTES = 32
_ATTRIBUTE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
_ATTRIBUTE_VALUE = kinds.text("value of an attribute", 256)


def _refuse_attribute(name: str) -> tuple[str, str] | None:
    if _ATTRIBUTE_NAME.fullmatch(name):
        return None
    return f"{shown(name)} is not the name of an attribute", "Write one as in deployment.environment.name."


def _read_resource(node: Node, place: Place, context: Context) -> tuple[tuple[str, str], ...] | None:
    return read_texts_by_name(
        node, place, _ATTRIBUTE_VALUE, _refuse_attribute, most=MOST_ATTRIBUTES, what="attributes", example="service.name"
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DcgmSettings(Access):
    """`dcgm:`: where this node's dcgm-exporter is and how to ask it."""

    url: ServerAddress | None = option(
        "dcgm.url",
        URL,
        "This node's dcgm-exporter, such as http://localhost:9400: memory bandwidth of GPUs older than "
        "Hopper. Default: not read.",
    )
    interval_seconds: float = option(
        "dcgm.interval",
        kinds.INTERVAL,
        "How often dcgm-exporter is read; by default it collects every 30s.",
        default="30s",
    )
    timeout_seconds: float | None = option(
        "dcgm.timeout",
        kinds.DURATION,
        "Deadline of one reading of dcgm-exporter; below its interval. Default: 80 % of the interval, at most 10s.",
    )


@dataclass(frozen=True, slots=True)
class DeviceExporterSettings(Access):
    """`device_exporter:`: where this node's exporter of AMD's or Intel's GPUs is and how to ask it."""

    url: ServerAddress | None = option(
        "device-exporter.url",
        URL,
        "This node's AMD device-metrics-exporter or Intel Gaudi metric exporter, such as http://localhost:5000: its GPUs are read "
        "instead of NVML's (docs/other-gpus.md). Default: NVML.",
    )
    timeout_seconds: float | None = option(
        "device-exporter.timeout",
        kinds.DURATION,
        "Deadline of one reading of the device exporter. Default: 80 % of gpu.interval, at most 10s.",
    )


@dataclass(frozen=True, slots=True)
class OtlpSettings(Access):
    """`otlp:`: where all series are sent over OTLP, and how."""

    url: ServerAddress | None = option(
        "otlp.url",
        URL,
        "Receiver of OTLP over HTTP that all series are sent to, such as http://localhost:4318; its path is /v1/metrics where the URL has "
        "none (docs/opentelemetry.md). Default: nothing is sent.",
    )
    interval_seconds: float = option(
        "otlp.interval", kinds.INTERVAL, "How often all series are sent over OTLP.", default="15s"
    )
    timeout_seconds: float | None = option(
        "otlp.timeout",
        kinds.DURATION,
        "Deadline of one request over OTLP; below its interval. Default: 80 % of the interval, at most 10s.",
    )
    gen_ai_operation: str | None = option(
        "otlp.gen-ai.operation",
        kinds.text("operation such as chat", 100),
        "Sends gen_ai.server.* too, with this as gen_ai.operation.name: chat, text_completion, generate_content, embeddings, or a word of "
        "your own. Engines count all kinds of requests together, so that you have to say what yours are. Default: not sent.",
    )
    resource: tuple[tuple[str, str], ...] | None = key(_read_resource)


# --- what they are read into -------------------------------------------------------------------------------------------

_DEVICE_PATH = "/metrics"
_OTLP_PATH = "/v1/metrics"  # of OTLP over HTTP, https://opentelemetry.io/docs/specs/otlp/#otlphttp-request
_MOST_ANSWER_BYTES = 64 * 1024  # of the receiver's answer, which says at most what it did not take


def read_dcgm(settings: Settings, file: ConfigFile, context: Context) -> DcgmConfig | None:
    """How to read dcgm-exporter; None where no URL of one is set. What is wrong is reported either way."""
    section, place = read_section("dcgm", DcgmSettings, settings, file, context)
    return _build_device_exporter(section, section.interval_seconds, settings, place, context)


def read_device_exporter(settings: Settings, file: ConfigFile, context: Context) -> DcgmConfig | None:
    """How to read the exporter of other GPUs, at the interval at which GPUs are read; None where no URL of one is set."""
    section, place = read_section("device_exporter", DeviceExporterSettings, settings, file, context)
    return _build_device_exporter(section, _gpu_interval(settings), settings, place, context)


def _build_device_exporter(
    section: DcgmSettings | DeviceExporterSettings,
    interval_seconds: float,
    settings: Settings,
    place: Place,
    context: Context,
) -> DcgmConfig | None:
    scrape = build_section(ScrapeConfig, settings)
    server = build_server(
        section, section.url, interval_seconds, place, context,
        max_series=scrape.max_series, max_body_bytes=scrape.max_body_bytes,
    )  # fmt: skip
    if section.url is None:
        return None
    path = section.url.path or _DEVICE_PATH
    return DcgmConfig(server.url, path, server.interval_seconds, server.max_series, server.http)


def _gpu_interval(settings: Settings) -> float:
    return float(settings.get("gpu.interval", settings["scrape.interval"]).value)


def refuse_device_timeouts(settings: Settings) -> None:
    """Reports timeouts that are not below their interval."""
    intervals = {"dcgm.timeout": settings["dcgm.interval"].value, "device-exporter.timeout": _gpu_interval(settings)}
    for name, interval in intervals.items():
        if name in settings:
            refuse_timeout(settings[name].place, interval, settings[name].value)


def read_otlp(settings: Settings, file: ConfigFile, context: Context) -> OtlpConfig | None:
    """Where to send; None where no URL is set. What is wrong is reported either way."""
    section, place = read_section("otlp", OtlpSettings, settings, file, context)
    server = build_server(
        section, section.url, section.interval_seconds, place, context, max_body_bytes=_MOST_ANSWER_BYTES
    )
    if section.url is None:
        return None
    if not _is_installed():
        what = "the messages of OpenTelemetry are not installed"
        settings["otlp.url"].place.refuse(what, "Run pip install 'llm-serving-exporter[otlp]'.")
    where = settings.get("otlp.timeout", settings["otlp.url"]).place
    refuse_timeout(where, server.interval_seconds, server.http.timeout_seconds)
    path, resource = section.url.path or _OTLP_PATH, section.resource or ()
    return OtlpConfig(server.url, path, server.interval_seconds, server.http, resource, section.gen_ai_operation)


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.proto") is not None
    except ModuleNotFoundError:
        return False


def endpoint_warnings(config: Config, settings: Settings, file: ConfigFile, host_name: str) -> Iterator[str]:
    """What is odd about how these servers are asked, and what is set for one that is not asked."""
    endpoints = {"dcgm": config.dcgm, "device_exporter": config.device_exporter, "otlp": config.otlp}
    for name, endpoint in endpoints.items():
        if endpoint is None:
            yield from unused_warnings(file, settings, name)
            continue
        where = settings[f"{name.replace('_', '-')}.url"].place
        if name == "dcgm" and not config.gpu.enabled:
            yield f"{where}: not used, because gpu.enabled is false: which GPUs there are is known from NVML only"
        if name == "device_exporter" and config.dcgm is not None:
            yield f"{where}: GPUs are read from here and not through NVML, so that what dcgm.url says of NVIDIA's is not used"
        server = Target(name, endpoint.url, interval_seconds=endpoint.interval_seconds, http=endpoint.http)
        yield from target_warnings([Placed(server, where)], host_name)

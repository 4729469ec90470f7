"""Servers beside the targets, asked with the credentials, headers and TLS of a target: `dcgm:`, `device_exporter:`, `otlp:`."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass

from llm_serving_exporter.model.target import Secret, Target
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.checks import Placed, refuse_timeout, target_warnings, unused_warnings
from llm_serving_exporter.settings.config import Config, DcgmConfig, OtlpConfig, ScrapeConfig
from llm_serving_exporter.settings.http import Auth, Tls, read_auth, read_headers, read_tls
from llm_serving_exporter.settings.keys import is_empty, key, mapping, read_keys, value
from llm_serving_exporter.settings.kinds import URL, Address
from llm_serving_exporter.settings.options import ConfigFile, Context, Settings, build_section, option, plain_keys
from llm_serving_exporter.settings.problems import Node, Place, shown
from llm_serving_exporter.settings.target_keys import (
    TargetSettings,
)
from llm_serving_exporter.settings.targets import build_target

MOST_ATTRIBUTES = 32
_ATTRIBUTE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
_ATTRIBUTE_VALUE = kinds.text("value of an attribute", 256)


def read_resource(node: Node | None, place: Place, context: Context) -> tuple[tuple[str, str], ...] | None:
    """Attributes by name; None where the key is not given. What is wrong is reported."""
    if node is None or is_empty(node):
        return None
    found = {}
    names = node.keys() if isinstance(node, dict) else ("service.name",)
    for name, content in mapping(node, place, names).items():
        at = place.key(name)
        if not _ATTRIBUTE_NAME.fullmatch(name):
            at.refuse(f"{shown(name)} is not the name of an attribute", "Write one as in deployment.environment.name.")
        elif (text := value(content, at, _ATTRIBUTE_VALUE)) is not None:
            found[name] = text
    if len(found) > MOST_ATTRIBUTES:
        place.refuse(f"{len(found)} attributes are more than {MOST_ATTRIBUTES}", "Keep those that somebody groups by.")
    return tuple(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class DcgmSettings:
    """`dcgm:`: where this node's dcgm-exporter is and how to ask it."""

    url: Address | None = option(
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
    auth: Auth | None = key(read_auth, "As for a target.")
    headers: tuple[tuple[str, str | Secret], ...] | None = key(read_headers, "As for a target.")
    tls: Tls | None = key(read_tls, "As for a target.")


@dataclass(frozen=True, slots=True)
class DeviceExporterSettings:
    """`device_exporter:`: where this node's exporter of AMD's or Intel's GPUs is and how to ask it."""

    url: Address | None = option(
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
    auth: Auth | None = key(read_auth, "As for a target, for the device exporter.")
    headers: tuple[tuple[str, str | Secret], ...] | None = key(read_headers, "As for a target, likewise.")
    tls: Tls | None = key(read_tls, "As for a target, for its certificates.")


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """`otlp:`: where all series are sent over OTLP, and how."""

    url: Address | None = option(
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
    auth: Auth | None = key(read_auth, "As for a target, for the receiver.")
    headers: tuple[tuple[str, str | Secret], ...] | None = key(read_headers, "As for a target, for the receiver.")
    tls: Tls | None = key(read_tls, "As for a target, for the receiver.")
    resource: tuple[tuple[str, str], ...] | None = key(
        read_resource,
        "Attributes of the resource, at most 32: `{deployment.environment.name: prod}`.",
    )


# --- exporters of GPUs --------------------------------------------------------------------------------------------------

_DEVICE_PATH = "/metrics"


def read_dcgm(settings: Settings, file: ConfigFile, context: Context) -> DcgmConfig | None:
    """How to read dcgm-exporter; None where no URL of one is set. What is wrong is reported either way."""
    return _read_section("dcgm", DcgmSettings, settings, file, context)


def read_device_exporter(settings: Settings, file: ConfigFile, context: Context) -> DcgmConfig | None:
    """How to read the exporter of other GPUs, at the interval at which GPUs are read; None where no URL of one is set."""
    return _read_section("device_exporter", DeviceExporterSettings, settings, file, context)


def _read_section(
    name: str,
    declaring: type[DcgmSettings] | type[DeviceExporterSettings],
    settings: Settings,
    file: ConfigFile,
    context: Context,
) -> DcgmConfig | None:
    node, place = file.find_key(name)
    # those that no flag can hold
    plain = read_keys(plain_keys(declaring), node if isinstance(node, dict) else {}, place, context)
    section = build_section(declaring, settings, **plain)
    scrape = build_section(ScrapeConfig, settings)
    own = TargetSettings(
        address=section.url,
        interval_seconds=section.interval_seconds if isinstance(section, DcgmSettings) else _gpu_interval(settings),
        timeout_seconds=section.timeout_seconds,
        max_series=scrape.max_series,
        max_body_bytes=scrape.max_body_bytes,
        auth=section.auth,
        headers=section.headers,
        tls=section.tls,
    )
    server = build_target(own, place, context.host)
    if section.url is None:
        return None
    return DcgmConfig(
        url=server.url,
        metrics_path=section.url.path or _DEVICE_PATH,
        interval_seconds=server.interval_seconds,
        max_series=server.max_series,
        http=server.http,
    )


def _gpu_interval(settings: Settings) -> float:
    stated = settings.get("gpu.interval", settings["scrape.interval"])
    return float(stated.value)


def refuse_dcgm_timeout(settings: Settings) -> None:
    """Reports timeouts that are not below their interval."""
    if "dcgm.timeout" in settings and settings["dcgm.timeout"].value >= settings["dcgm.interval"].value:
        refuse_timeout(settings["dcgm.timeout"].place, settings["dcgm.interval"].value, settings["dcgm.timeout"].value)
    timeout = settings.get("device-exporter.timeout")
    if timeout is not None and timeout.value >= _gpu_interval(settings):
        refuse_timeout(timeout.place, _gpu_interval(settings), timeout.value)


def dcgm_warnings(config: Config, settings: Settings, file: ConfigFile, host_name: str) -> Iterator[str]:
    """What is odd about how dcgm-exporter is read, and what is set for one that is not read."""
    dcgm = config.dcgm
    if dcgm is None:
        yield from unused_warnings(file, settings, "dcgm")
        return
    where = settings["dcgm.url"].place
    if not config.gpu.enabled:
        yield f"{where}: not used, because gpu.enabled is false: which GPUs there are is known from NVML only"
    server = Target("dcgm-exporter", dcgm.url, interval_seconds=dcgm.interval_seconds, http=dcgm.http)
    yield from target_warnings([Placed(server, where)], host_name)


def device_exporter_warnings(config: Config, settings: Settings, file: ConfigFile, host_name: str) -> Iterator[str]:
    """What is odd about how the exporter of other GPUs is read, and what is set for one that is not read."""
    found = config.device_exporter
    if found is None:
        yield from unused_warnings(file, settings, "device_exporter")
        return
    where = settings["device-exporter.url"].place
    if config.dcgm is not None:
        yield f"{where}: GPUs are read from here and not through NVML, so that what dcgm.url says of NVIDIA's is not used"
    server = Target("device-exporter", found.url, interval_seconds=found.interval_seconds, http=found.http)
    yield from target_warnings([Placed(server, where)], host_name)


# --- receivers of OTLP --------------------------------------------------------------------------------------------------

# of OTLP over HTTP, https://opentelemetry.io/docs/specs/otlp/#otlphttp-request
_OTLP_PATH = "/v1/metrics"
# of the receiver's answer, which says at most what it did not take
_MOST_ANSWER_BYTES = 64 * 1024


def read_otlp(settings: Settings, file: ConfigFile, context: Context) -> OtlpConfig | None:
    """Where to send; None where no URL is set. What is wrong is reported either way."""
    node, place = file.find_key("otlp")
    plain = read_keys(plain_keys(OtlpSettings), node if isinstance(node, dict) else {}, place, context)
    section = build_section(OtlpSettings, settings, **plain)
    own = TargetSettings(
        address=section.url,
        interval_seconds=section.interval_seconds,
        timeout_seconds=section.timeout_seconds,
        max_body_bytes=_MOST_ANSWER_BYTES,
        auth=section.auth,
        headers=section.headers,
        tls=section.tls,
    )
    server = build_target(own, place, context.host)
    if section.url is None:
        return None
    if not _is_installed():
        what = "the messages of OpenTelemetry are not installed"
        settings["otlp.url"].place.refuse(what, "Run pip install 'llm-serving-exporter[otlp]'.")
    if server.http.timeout_seconds >= server.interval_seconds:
        where = settings.get("otlp.timeout", settings["otlp.url"]).place
        refuse_timeout(where, server.interval_seconds, server.http.timeout_seconds)
    path = section.url.path or _OTLP_PATH
    return OtlpConfig(
        server.url, path, server.interval_seconds, server.http, section.resource or (), section.gen_ai_operation
    )


def otlp_warnings(config: Config, settings: Settings, file: ConfigFile, host_name: str) -> Iterator[str]:
    """What is odd about how series are sent, and what is set where none is."""
    otlp = config.otlp
    if otlp is None:
        yield from unused_warnings(file, settings, "otlp")
        return
    server = Target("otlp", otlp.url, interval_seconds=otlp.interval_seconds, http=otlp.http)
    yield from target_warnings([Placed(server, settings["otlp.url"].place)], host_name)


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.proto") is not None
    except ModuleNotFoundError:
        return False

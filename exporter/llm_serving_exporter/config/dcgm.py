"""`dcgm:` and `device_exporter:`: where exporters of GPUs are and how to ask them, with the credentials, headers and TLS of a target."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_exporter.config.build import build_target
from llm_serving_exporter.config.checks import Placed, refuse_timeout
from llm_serving_exporter.config.file import ConfigFile
from llm_serving_exporter.config.options import Settings, build_section, plain_keys
from llm_serving_exporter.config.target_keys import DcgmSettings, DeviceExporterSettings, TargetSettings
from llm_serving_exporter.config.types import Config, DcgmConfig, ScrapeConfig
from llm_serving_exporter.config.warnings import target_warnings, unused_warnings
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.keys import read_keys

METRICS_PATH = "/metrics"


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
        metrics_path=section.url.path or METRICS_PATH,
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

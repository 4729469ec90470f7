"""`dcgm:`: where dcgm-exporter is and how to ask it, with the credentials, headers and TLS that a target can have."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_exporter.config.build import build_target
from llm_serving_exporter.config.checks import Placed, refuse_timeout
from llm_serving_exporter.config.file import ConfigFile
from llm_serving_exporter.config.options import Settings, build_section, plain_keys
from llm_serving_exporter.config.target_keys import DcgmSettings, TargetSettings
from llm_serving_exporter.config.types import Config, DcgmConfig, ScrapeConfig
from llm_serving_exporter.config.warnings import target_warnings
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.keys import read_keys

METRICS_PATH = "/metrics"
# those that no flag can hold
_PLAIN_KEYS = plain_keys(DcgmSettings)


def read_dcgm(settings: Settings, file: ConfigFile, context: Context) -> DcgmConfig | None:
    """How to read dcgm-exporter; None where no URL of one is set. What is wrong is reported either way."""
    node, place = file.find_key("dcgm")
    dcgm = build_section(
        DcgmSettings, settings, **read_keys(_PLAIN_KEYS, node if isinstance(node, dict) else {}, place, context)
    )
    scrape = build_section(ScrapeConfig, settings)
    own = TargetSettings(
        address=dcgm.url,
        interval_seconds=dcgm.interval_seconds,
        timeout_seconds=dcgm.timeout_seconds,
        max_series=scrape.max_series,
        max_body_bytes=scrape.max_body_bytes,
        auth=dcgm.auth,
        headers=dcgm.headers,
        tls=dcgm.tls,
    )
    server = build_target(own, place, context.host)
    if dcgm.url is None:
        return None
    return DcgmConfig(
        url=server.url,
        metrics_path=dcgm.url.path or METRICS_PATH,
        interval_seconds=server.interval_seconds,
        max_series=server.max_series,
        http=server.http,
    )


def refuse_dcgm_timeout(settings: Settings) -> None:
    """Reports a timeout that is not below the interval."""
    if "dcgm.timeout" in settings and settings["dcgm.timeout"].value >= settings["dcgm.interval"].value:
        place = settings["dcgm.timeout"].place
        refuse_timeout(place, settings["dcgm.interval"].value, settings["dcgm.timeout"].value)


def dcgm_warnings(config: Config, settings: Settings, file: ConfigFile, host_name: str) -> Iterator[str]:
    """What is odd about how dcgm-exporter is read, and what is set for one that is not read."""
    node, place = file.find_key("dcgm")
    dcgm = config.dcgm
    if dcgm is None:
        if isinstance(node, dict) and node:
            yield f"{place}: not used, because dcgm.url is not set"
        return
    where = settings["dcgm.url"].place
    if not config.gpu.enabled:
        yield f"{where}: not used, because gpu.enabled is false: which GPUs there are is known from NVML only"
    server = Target("dcgm-exporter", dcgm.url, interval_seconds=dcgm.interval_seconds, http=dcgm.http)
    yield from target_warnings([Placed(server, where)], host_name)

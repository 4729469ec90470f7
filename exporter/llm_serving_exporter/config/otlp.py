"""`otlp:`: where all series are sent over OTLP, with the credentials, headers and TLS of a target."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from llm_serving_exporter.config.build import build_target
from llm_serving_exporter.config.checks import Placed, refuse_timeout
from llm_serving_exporter.config.file import ConfigFile
from llm_serving_exporter.config.options import Settings, build_section, plain_keys
from llm_serving_exporter.config.target_keys import OtlpSettings, TargetSettings
from llm_serving_exporter.config.types import Config, OtlpConfig
from llm_serving_exporter.config.warnings import target_warnings, unused_warnings
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.keys import read_keys

# of OTLP over HTTP, https://opentelemetry.io/docs/specs/otlp/#otlphttp-request
METRICS_PATH = "/v1/metrics"
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
    path = section.url.path or METRICS_PATH
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

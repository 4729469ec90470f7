"""The configuration as the daemon gets it: frozen, checked, in base units, nothing left to interpret.

A field with `option(…)` is the whole declaration of a key: its flag, its environment variable, its place in the YAML file, its
type, bounds and default, and what `--help` and docs/configuration.md say about it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from llm_serving_exporter.catalogue.standstill import SPAN_SECONDS
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.cost import Attribution, Method
from llm_serving_exporter.model.hardware import Efficiency
from llm_serving_exporter.model.record import is_record, name_fields, replace
from llm_serving_exporter.model.target import ExpectedReplicas, HttpSettings, Secret, Shard, Target
from llm_serving_exporter.model.tenants import TenantKind, TenantSettings
from llm_serving_exporter.model.text import LABEL_LENGTH, MASK
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.facts import GPU_COUNT, GPU_NAME
from llm_serving_exporter.settings.identity import SHARD, TARGET_LABEL
from llm_serving_exporter.settings.keys import key, mapping_reader
from llm_serving_exporter.settings.kinds import format_duration
from llm_serving_exporter.settings.options import Option, option

if TYPE_CHECKING:
    from llm_serving_exporter.engines.mapping import Runtime
    from llm_serving_exporter.model.cost import PriceBook
    from llm_serving_exporter.model.hardware import GpuSpec
    from llm_serving_exporter.settings.discovery import DiscoverySection


def none_if_off(seconds: float) -> float | None:
    """A threshold; None for `off`."""
    return None if seconds == kinds.OFF else seconds


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Where and how the exporter listens."""

    # "host:port" or ":port"; each of them is served
    listen_addresses: tuple[str, ...] = option(
        "web.listen-address",
        kinds.LISTEN_ADDRESS,
        "Address to listen on; :PORT means every interface. A list in the file.",
        default=":10077",
        repeatable=True,
        becomes=lambda addresses: tuple(dict.fromkeys(addresses)),
    )
    telemetry_path: str = option(
        "web.telemetry-path", kinds.TELEMETRY_PATH, "Path of the metrics page.", default="/metrics"
    )
    enable_lifecycle: bool = option(
        "web.enable-lifecycle", kinds.BOOLEAN, "Allow a reload by a POST to /-/reload.", default="false"
    )
    runbooks: bool = option("web.runbooks", kinds.BOOLEAN, "Serve the alerts' runbooks at /runbooks/.", default="false")
    # None = plain HTTP for everybody
    config_file: str | None = option(
        "web.config.file", kinds.PATH, "exporter-toolkit web config file: TLS and basic auth."
    )


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What is logged, and how."""

    level: str = option(
        "log.level",
        kinds.choice("log level", ("debug", "info", "warn", "error")),
        "Lowest level that is logged: debug, info, warn or error.",
        default="info",
    )
    format: str = option(
        "log.format",
        kinds.choice("log format", ("logfmt", "json")),
        "Format of the log lines: logfmt or json.",
        default="logfmt",
    )


@dataclass(frozen=True, slots=True)
class ScrapeConfig:
    """Limits of one scrape, for targets that set none of their own."""

    # None = 80 % of the target's interval, at most 10 s
    timeout_seconds: float | None = option(
        "scrape.timeout",
        kinds.DURATION,
        "Deadline of one scrape as a whole; below the interval. Default: 80 % of the interval, at most 10s.",
    )
    max_body_bytes: int = option(
        "scrape.max-body-bytes", kinds.SIZE, "Largest metrics page, after decompression.", default="16MiB"
    )
    max_series: int = option("scrape.max-series", kinds.MAX_SERIES, "Most series of a metrics page.", default="50000")


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """Whether and how NVML is read."""

    enabled: bool = option("gpu.enabled", kinds.BOOLEAN, "Read the GPUs of this node through NVML.", default="true")
    gpm: bool = option(
        "gpu.gpm",
        kinds.BOOLEAN,
        "Sample GPM (memory bandwidth, SM, tensor activity; Hopper and newer).",
        default="true",
    )
    # None = Config.interval_seconds
    interval_seconds: float | None = option(
        "gpu.interval", kinds.INTERVAL, "How often the GPUs are read. Default: scrape.interval."
    )
    # a path, kinds.AUTO_WORD or kinds.OFF_WORD
    pod_resources_socket: str = option(
        "gpu.pod-resources-socket",
        kinds.SOCKET,
        "Socket on which the kubelet says which pod has which GPUs (docs/kubernetes-gpus.md); auto: the usual path, where it exists; off.",
        default="auto",
    )
    dra: bool = option(
        "gpu.dra",
        kinds.BOOLEAN,
        "Read the node's ResourceSlices, which say which GPU a claimed device is (DRA); wants a section of kubernetes with node.",
        default="false",
    )


@dataclass(frozen=True, slots=True)
class DcgmConfig:
    """Where this node's dcgm-exporter, or another device exporter, is and how to ask it; settings/endpoints.py declares its keys."""

    url: str  # scheme://host:port
    metrics_path: str = "/metrics"
    # dcgm-exporter collects every 30 s by default: a shorter interval reads the same values again
    interval_seconds: float = 30.0
    max_series: int = 50_000
    http: HttpSettings = field(default_factory=lambda: HttpSettings(timeout_seconds=10.0))


@dataclass(frozen=True, slots=True)
class OtlpConfig:
    """Where all series are sent over OTLP; settings/endpoints.py declares its keys."""

    url: str  # scheme://host:port
    path: str = "/v1/metrics"
    interval_seconds: float = 15.0
    http: HttpSettings = field(default_factory=lambda: HttpSettings(timeout_seconds=10.0))
    # attributes of the resource beside the exporter's own, which they replace
    resource: tuple[tuple[str, str], ...] = ()
    gen_ai_operation: str | None = None  # gen_ai.operation.name of gen_ai.server.*; None: those are not sent


@dataclass(frozen=True, slots=True)
class SloConfig:
    """Thresholds in seconds; None = that SLO is not counted."""

    # 2.5 s is a bucket edge of vLLM's histogram
    ttft_seconds: float | None = option(
        "slo.ttft",
        kinds.THRESHOLD,
        "Time to first token that counts as good, or off.",
        default="2.5s",
        becomes=none_if_off,
    )
    itl_seconds: float | None = option(
        "slo.itl",
        kinds.THRESHOLD,
        "Inter-token latency that counts as good, or off.",
        default="off",
        becomes=none_if_off,
    )
    e2e_seconds: float | None = option(
        "slo.e2e", kinds.THRESHOLD, "Request latency that counts as good, or off.", default="off", becomes=none_if_off
    )
    errors: bool = option(
        "slo.errors", kinds.BOOLEAN, "Count requests that ended in an error against the errors SLO.", default="true"
    )


@dataclass(frozen=True, slots=True)
class CostConfig:
    """How busy GPU time is split into prefill and decode."""

    method: Method = option(
        "cost.method",
        kinds.member("method", Method),
        "How busy GPU time is split into prefill and decode: roofline (seconds at the ceilings), flat, "
        "output_only, price_ratio, pools.",
        default="roofline",
    )
    decode_to_prefill_ratio: float = option(
        "cost.decode-to-prefill-ratio",
        kinds.decimal("a number above 0, up to 1000", 0.0, 1000.0),
        "How many computed prompt tokens a generated token weighs, for the method price_ratio.",
        default="4",
    )
    compute_efficiency: float = option(
        "cost.compute-efficiency",
        kinds.SHARE,
        "Share of the compute peak that work is assumed to reach, for the method roofline.",
        default="1",
    )
    bandwidth_efficiency: float = option(
        "cost.bandwidth-efficiency",
        kinds.SHARE,
        "Share of the bandwidth peak that decode is assumed to reach, for the method roofline.",
        default="1",
    )
    gap_limit_seconds: float = option(
        "cost.gap-limit",
        kinds.DURATION,
        "Longest time without an exporter that is booked as unattributed when it starts again with its state folder.",
        default="2m",
    )


@dataclass(frozen=True, slots=True)
class LimiterConfig:
    """What the limiter goes by."""

    stalled_after_seconds: float = option(
        "limiter.stalled-after",
        kinds.INTERVAL,
        "How long nothing may move while requests run or wait before an engine is called stalled; longer than the longest prefill, as the "
        "range of LLMServingStalled.",
        default=format_duration(SPAN_SECONDS),
    )


MOST_TENANTS = 1000  # with --tenants.limit, what bounds the series: tenants times models
_ALIASES = mapping_reader(
    kinds.text("model", LABEL_LENGTH), "Write a word before each colon.", form="such as {gpt-4o: llama-70b}"
)


@dataclass(frozen=True, slots=True)
class TenantsConfig:
    """Whether front doors' tokens are counted by tenant, and how tenants are named."""

    by: TenantKind = option(
        "tenants.by",
        kinds.member("kind of tenant", TenantKind),
        "Whether tokens of gateways are counted by tenant, and what a tenant is: off, team, key (its alias), user, header (see "
        "tenants.label), adapter (docs/tenants.md).",
        default="off",
    )
    # None = the table of the runtime says it
    label: str | None = option(
        "tenants.label",
        kinds.text("label", 200),
        "Label of the gateway's page that names the tenant, for tenants.by header.",
    )
    # None = names are published as they are
    hmac_key_file: str | None = option(
        "tenants.hmac-key-file",
        kinds.PATH,
        "File with a secret of at least 32 bytes: tenants are then published as 16 hex digits of the HMAC-SHA256 of their name.",
    )
    limit: int = option(
        "tenants.limit",
        kinds.integer(1, MOST_TENANTS),
        "How many tenants have series of their own; all others are one, other.",
        default="100",
    )
    # name that was asked for -> name under which an engine serves it
    aliases: Mapping[str, str] = key(_ALIASES, unset={})

    @property
    def settings(self) -> TenantSettings:
        """What targets go by."""
        return TenantSettings(self.by, self.label, self.hmac_key_file, self.limit, self.aliases)


@dataclass(frozen=True, slots=True)
class ReviewSchedule:
    """The weekly cost review whose state this exporter publishes."""

    settings_file: str
    folder: str  # where the reviews and the file about their runs are
    cron: str | None  # when the review is due, None = never
    timezone: str  # of `cron`, a name of the IANA database
    run: bool


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration."""

    targets: tuple[Target, ...]  # configured one by one; discovery adds its own
    discovery: tuple[DiscoverySection, ...] = ()  # in the order in which their targets are taken
    # None = all targets are read here
    shard: Shard | None = option(
        "shard",
        SHARD,
        "Which part of the targets is read here, where several exporters share them: 2/4 is the second of four, ordinal/4 goes by "
        "the ordinal of a StatefulSet's pod (docs/discovery.md). Default: all of them.",
    )
    web: WebConfig = field(default_factory=WebConfig)
    log: LogConfig = field(default_factory=LogConfig)
    # of the process, for whatever sets no interval of its own
    interval_seconds: float = option(
        "scrape.interval", kinds.INTERVAL, "How often each server is scraped.", default="5s"
    )
    scrape: ScrapeConfig = field(default_factory=ScrapeConfig)
    # how long the last good values stay after the last success; 15 s = 3 of the default interval
    stale_after_seconds: float = option(
        "scrape.stale-after",
        kinds.DURATION,
        "How long the last good values stay when a server no longer answers. Default: 3 of the longest interval.",
        unset=15.0,
    )
    window_seconds: float = option(
        "window",
        kinds.DURATION,
        "Window of rates, means and ratios; at least 2 intervals. It is longer where an engine counts late.",
        default="60s",
    )
    gpu: GpuConfig = field(default_factory=GpuConfig)
    dcgm: DcgmConfig | None = None
    device_exporter: DcgmConfig | None = None  # whose GPUs are read instead of NVML's; None = NVML's
    otlp: OtlpConfig | None = None
    slo: SloConfig = field(default_factory=SloConfig)
    limiter: LimiterConfig = field(default_factory=LimiterConfig)
    expected_replicas: tuple[ExpectedReplicas, ...] = ()
    all_buckets: bool = option(
        "all-buckets",
        kinds.BOOLEAN,
        "Publish the buckets of every histogram. By default time per output token, prefill time and decode time have only their count "
        "and sum: no rule or dashboard reads more of them.",
        default="false",
    )
    target_labels: tuple[str, ...] = option(
        "target-labels",
        TARGET_LABEL,
        "Labels of targets that stand on every series of a target, at most 8: those that rules, dashboards and the cost review group by. "
        "A list in the file.",
        repeatable=True,
        unset=(),
    )
    runtimes: tuple[Runtime, ...] = ()
    gpu_models: tuple[GpuSpec, ...] = ()
    hf_cache: str | None = option(
        "hf-cache",
        kinds.PATH,
        "Hugging Face cache (the folder with models--*) in which the config.json of served models is looked up.",
    )
    model_catalogue: str | None = option(
        "model-catalogue",
        kinds.PATH,
        "Your own models, before the built-in ones: a TOML file or a folder of them, or of config.json files (docs/ceiling-command.md).",
    )
    price_file: str | None = option(
        "cost.price-file",
        kinds.PATH,
        "YAML file of what GPUs cost (docs/prices.md); it is read again when it changes. Default: no cost series.",
    )
    cost: CostConfig = field(default_factory=CostConfig)
    tenants: TenantsConfig = field(default_factory=TenantsConfig)
    report_settings_file: str | None = option(
        "report.settings-file",
        kinds.PATH,
        "Settings file of the weekly cost review (docs/report.md). One exporter makes the review when it is "
        "due and publishes when it was made.",
    )
    report_run: bool = option(
        "report.run",
        kinds.BOOLEAN,
        "Make the review; false where something else, such as a CronJob, makes it.",
        default="true",
    )
    review: ReviewSchedule | None = None  # of `report_settings_file`, which the caller of the loader reads
    prices: PriceBook | None = None  # of `price_file`; None without one, or where it cannot be used
    price_problems: tuple[Problem, ...] = ()
    price_warnings: tuple[str, ...] = ()  # what is legal in it but odd, in sentences
    state_file: str | None = option(
        "state-file", kinds.PATH, "File in which the exporter keeps what must outlive a restart."
    )
    state_dir: str | None = option(
        "state-dir",
        kinds.PATH,
        "Folder in which the exporter keeps what has been counted of cost, so that its counters go on after a restart (docs/prices.md). "
        "It must exist, and be this exporter's alone. Default: they begin at 0.",
    )
    drill_result_file: str | None = option(
        "drill.result-file", kinds.PATH, "File in which drills leave their results, for one exporter to publish."
    )
    file: str | None = None  # the configuration file; None = there is none
    config_hash: str = ""  # SHA-256 (hex) of the effective configuration
    warnings: tuple[str, ...] = ()  # what is legal but odd, in sentences

    @property
    def attribution(self) -> Attribution:
        """How busy time is split by phase."""
        cost = self.cost
        efficiency = Efficiency(cost.compute_efficiency, cost.bandwidth_efficiency)
        return Attribution(cost.method, cost.decode_to_prefill_ratio, efficiency)


# fields of Config whose classes declare options and nothing else
SECTIONS: Mapping[str, type] = {
    "web": WebConfig, "log": LogConfig, "scrape": ScrapeConfig, "gpu": GpuConfig, "slo": SloConfig,
    "limiter": LimiterConfig, "cost": CostConfig,
}  # fmt: skip


# --- flags that only name where the rest is read from ------------------------------------------------------------------

_flag = partial(Option, in_file=False)
CONFIG_FILE = _flag(kinds.PATH, "YAML configuration file.", name="config.file")
_URL_HELP = "URL of an LLM server, such as http://localhost:8000; replaces the file's targets."
TARGET = _flag(kinds.text("URL", 2000), _URL_HELP, name="target", repeatable=True)
# of the servers that --target names; settings/targets.py puts them there
TARGET_GPU_MODEL = _flag(
    GPU_NAME,
    "What the GPUs of the servers of --target are, such as H100 SXM, where NVML does not show them.",
    name="gpu-model",
)
TARGET_GPU_COUNT = _flag(
    GPU_COUNT, "How many GPUs each server of --target has, where they cannot be seen from here.", name="gpu-count"
)
TARGET_GPU_PRICE = _flag(
    kinds.USD, "USD of one GPU and hour of the servers of --target, where there is no price file.", name="gpu-price"
)
FILE_SD = _flag(
    kinds.PATH,
    "Prometheus file_sd file or glob (*.yml) that lists targets; replaces the file's file_sd.",
    name="file-sd",
    repeatable=True,
)
SLO_FILE = Option(
    name="slo.file",
    reads=kinds.PATH,
    help="Settings file of the alert rules, for the latency thresholds. A threshold that is set here wins over it.",
)
# in the order of --help, before all others
FLAGS = (CONFIG_FILE, TARGET, TARGET_GPU_MODEL, TARGET_GPU_COUNT, TARGET_GPU_PRICE, FILE_SD)


# --- the form for people, and the hash ---------------------------------------------------------------------------------

# all but the shard change nothing that the exporter does; exporters that share a fleet are meant to differ by the shard alone, so that
# their hashes tell whether they differ in anything else
_NOT_HASHED = ("config_hash", "file", "warnings", "price_problems", "price_warnings", "shard")


def effective(config: Config) -> dict[str, Any]:
    """The whole configuration, defaults included, as JSON types. A secret shows as {"file": path} or {"env": name}, a request header
    that stands in the configuration itself as a mask."""
    return _all_of(config, masked=True)


def hash_of(config: Config) -> str:
    """SHA-256 (hex) of the effective configuration; equal for two files that mean the same."""
    content = {key: item for key, item in _all_of(config, masked=False).items() if key not in _NOT_HASHED}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _all_of(config: Config, *, masked: bool) -> dict[str, Any]:
    return {name: _plain(getattr(config, name), masked) for name in name_fields(config)}


def _plain(value: Any, masked: bool) -> Any:
    if masked and isinstance(value, HttpSettings):
        hidden = tuple((name, MASK if isinstance(content, str) else content) for name, content in value.headers)
        value = replace(value, headers=hidden)
    if isinstance(value, Secret):
        return {"file": value.file} if value.file is not None else {"env": value.env}
    if is_record(value):
        return {name: _plain(getattr(value, name), masked) for name in name_fields(value)}
    if callable(value):
        # the code of a built-in table that one of the file is based on
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, (tuple, list)):
        return [_plain(item, masked) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, masked) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, str) else value

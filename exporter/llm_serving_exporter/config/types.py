"""The configuration as the daemon gets it: frozen, checked, in base units, nothing left to interpret.

A field with `option(…)` is the whole declaration of a key: its flag, its environment variable, its place in the YAML file, its
type, bounds and default, and what `--help` and docs/configuration.md say about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llm_serving_exporter.config.identity import TARGET_LABEL
from llm_serving_exporter.config.limiter import LimiterConfig
from llm_serving_exporter.config.option import option
from llm_serving_exporter.config.shard import SHARD
from llm_serving_exporter.config.tenants import TenantsConfig
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.cost import Attribution, Efficiency, Method
from llm_serving_exporter.model.shard import Shard
from llm_serving_exporter.model.target import ExpectedReplicas, HttpSettings, Target
from llm_serving_exporter.schema import kinds

if TYPE_CHECKING:
    from llm_serving_exporter.config.discovery_types import DiscoverySection
    from llm_serving_exporter.model.hardware import GpuSpec
    from llm_serving_exporter.model.prices import PriceBook
    from llm_serving_exporter.normalise.mapping import Runtime


def none_if_off(seconds: float) -> float | None:
    """A threshold; None for `off`."""
    return None if seconds == kinds.OFF else seconds


def drop_repeats(words: tuple[str, ...]) -> tuple[str, ...]:
    """Each word once, in the order of the first."""
    return tuple(dict.fromkeys(words))


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
        becomes=drop_repeats,
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
        "Lowest level that is logged.",
        default="info",
    )
    format: str = option(
        "log.format", kinds.choice("log format", ("logfmt", "json")), "Format of the log lines.", default="logfmt"
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
    """Where this node's dcgm-exporter, or another device exporter, is and how to ask it; config/target_keys.py declares its keys."""

    # scheme://host:port
    url: str
    metrics_path: str = "/metrics"  # of its page
    # dcgm-exporter collects every 30 s by default: a shorter interval reads the same values again
    interval_seconds: float = 30.0
    # the most series that its page may have
    max_series: int = 50_000
    http: HttpSettings = field(default_factory=lambda: HttpSettings(timeout_seconds=10.0))  # how it is asked


@dataclass(frozen=True, slots=True)
class OtlpConfig:
    """Where all series are sent over OTLP; config/target_keys.py declares its keys."""

    url: str  # scheme://host:port
    path: str = "/v1/metrics"  # for metrics
    interval_seconds: float = 15.0  # from one sending to the next
    http: HttpSettings = field(default_factory=lambda: HttpSettings(timeout_seconds=10.0))  # how it is asked
    resource: tuple[
        tuple[str, str], ...
    ] = ()  # attributes of the resource beside the exporter's own, which they replace
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
class ReviewSchedule:
    """The weekly cost review whose state this exporter publishes."""

    settings_file: str  # that the review itself reads
    # where the reviews and the file about their runs are
    folder: str
    # when the review is due, None = never
    cron: str | None
    # of `cron`, a name of the IANA database
    timezone: str
    # whether this exporter makes the review too
    run: bool


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration."""

    # targets that are configured one by one; discovery adds its own
    targets: tuple[Target, ...]
    discovery: tuple[DiscoverySection, ...] = ()  # in the order in which their targets are taken
    # None = all targets are read here
    shard: Shard | None = option(
        "shard",
        SHARD,
        "Which part of the targets is read here, where several exporters share them: 2/4 is the second of four, ordinal/4 goes by "
        "the ordinal of a StatefulSet's pod (docs/discovery.md). Default: all of them.",
    )
    web: WebConfig = field(default_factory=WebConfig)  # where and how the web server listens
    log: LogConfig = field(default_factory=LogConfig)  # level and form of log lines
    # of the process, for whatever sets no interval of its own
    interval_seconds: float = option(
        "scrape.interval", kinds.INTERVAL, "How often each server is scraped.", default="5s"
    )
    scrape: ScrapeConfig = field(default_factory=ScrapeConfig)  # deadlines and bounds of a reading
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
    gpu: GpuConfig = field(default_factory=GpuConfig)  # whether and how NVML is read
    dcgm: DcgmConfig | None = None  # None = no dcgm-exporter is read
    device_exporter: DcgmConfig | None = None  # whose GPUs are read instead of NVML's; None = NVML's
    otlp: OtlpConfig | None = None  # None = nothing is sent over OTLP
    slo: SloConfig = field(default_factory=SloConfig)  # thresholds that good and bad events are counted by
    limiter: LimiterConfig = field(default_factory=LimiterConfig)  # what the limiter goes by
    expected_replicas: tuple[
        ExpectedReplicas, ...
    ] = ()  # replicas that the user means to run, by model, role and identity
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
    runtimes: tuple[Runtime, ...] = ()  # the file's own tables
    gpu_models: tuple[GpuSpec, ...] = ()  # GPUs that the file describes
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
    cost: CostConfig = field(default_factory=CostConfig)  # how busy time is split
    tenants: TenantsConfig = field(default_factory=TenantsConfig)  # whose tokens front doors count
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
    # of `report_settings_file`, which the caller of the loader reads
    review: ReviewSchedule | None = None
    prices: PriceBook | None = None  # of `price_file`; None without one, or where it cannot be used
    price_problems: tuple[Problem, ...] = ()  # why `price_file` cannot be used
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
    # the configuration file; None = there is none
    file: str | None = None
    config_hash: str = ""  # SHA-256 (hex) of the effective configuration
    warnings: tuple[str, ...] = ()  # what is legal but odd, in sentences

    @property
    def attribution(self) -> Attribution:
        """How busy time is split by phase."""
        cost = self.cost
        efficiency = Efficiency(cost.compute_efficiency, cost.bandwidth_efficiency)
        return Attribution(cost.method, cost.decode_to_prefill_ratio, efficiency)

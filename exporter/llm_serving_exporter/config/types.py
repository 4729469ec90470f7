"""The configuration as the daemon gets it: frozen, checked, in base units, nothing left to interpret."""

from __future__ import annotations

from dataclasses import dataclass, field

from llm_serving_exporter.model.cost import Attribution
from llm_serving_exporter.model.prices import PriceBook
from llm_serving_exporter.model.target import ExpectedReplicas, HttpSettings, Target
from llm_serving_exporter.model.web import WebConfig
from llm_serving_exporter.normalise.mapping import Runtime


@dataclass(frozen=True, slots=True)
class LogConfig:
    """`level`: debug, info, warn, error. `format`: logfmt or json."""

    level: str = "info"
    format: str = "logfmt"


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """Whether to read NVML, how often (seconds; None = the scrape interval), and whether to sample GPM."""

    enabled: bool = True
    interval_seconds: float | None = None
    gpm: bool = True


@dataclass(frozen=True, slots=True)
class DcgmConfig:
    """Where this node's dcgm-exporter is and how to ask it. `url`: scheme://host:port, no path.

    `interval_seconds`: how often it is read; it collects every 30 s by default, so that more often repeats values.
    """

    url: str
    metrics_path: str = "/metrics"
    interval_seconds: float = 30.0
    max_series: int = 50_000
    http: HttpSettings = field(default_factory=lambda: HttpSettings(timeout_seconds=10.0))


@dataclass(frozen=True, slots=True)
class SloConfig:
    """Thresholds in seconds; None = that SLO is not counted. TTFT's 2.5 s is an edge of vLLM's histogram."""

    ttft_seconds: float | None = 2.5
    itl_seconds: float | None = None
    e2e_seconds: float | None = None
    errors: bool = True


@dataclass(frozen=True, slots=True)
class FileDiscovery:
    """Prometheus file_sd: `files` are paths or globs (the last path element only), re-read when they change.

    `defaults` holds every setting but name and URL for the targets found there.
    """

    files: tuple[str, ...]
    defaults: Target


@dataclass(frozen=True, slots=True)
class ReviewSchedule:
    """The weekly cost review that this exporter tells of. `folder`: where reviews and the file about them stand.

    `cron`: when it is due, in `timezone`, None = never. `run`: whether this exporter makes it too.
    """

    settings_file: str
    folder: str
    cron: str | None
    timezone: str
    run: bool


@dataclass(frozen=True, slots=True)
class Config:
    """Everything. `stale_after_seconds`: how long the last good values stay after the last success.

    `interval_seconds`: the process's own, where nothing more specific says otherwise (GPUs, discovery).
    `runtimes`: the configuration's own tables. `dcgm`: None where no dcgm-exporter is read. `window_seconds`: over which rates, means and
    quantiles are taken.
    `config_hash`: SHA-256 (hex) of the effective configuration. `hf_cache`: a Hugging Face cache to look models up in.
    `drill_result_file`: what drills leave, None where this exporter does not publish it. `file`: the configuration file, None where
    there is none. `attribution`: how busy time is split by phase. `prices`: what `price_file` says, None without one.
    `review`: of `report_settings_file`, which the caller of the loader reads. `warnings`: what is legal but odd.
    """

    targets: tuple[Target, ...]
    discovery: tuple[FileDiscovery, ...] = ()
    web: WebConfig = field(default_factory=WebConfig)
    log: LogConfig = field(default_factory=LogConfig)
    gpu: GpuConfig = field(default_factory=GpuConfig)
    dcgm: DcgmConfig | None = None
    slo: SloConfig = field(default_factory=SloConfig)
    expected_replicas: tuple[ExpectedReplicas, ...] = ()
    runtimes: tuple[Runtime, ...] = ()
    interval_seconds: float = 5.0
    window_seconds: float = 60.0
    stale_after_seconds: float = 15.0
    state_file: str | None = None
    drill_result_file: str | None = None
    attribution: Attribution = field(default_factory=Attribution)
    price_file: str | None = None
    report_settings_file: str | None = None
    report_run: bool = True
    review: ReviewSchedule | None = None
    prices: PriceBook | None = None
    hf_cache: str | None = None
    file: str | None = None
    config_hash: str = ""
    warnings: tuple[str, ...] = ()

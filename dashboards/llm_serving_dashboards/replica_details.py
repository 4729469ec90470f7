"""What only a replica's own page and GPUs say: the lower half of its dashboard."""

from __future__ import annotations

from llm_serving_alerts.promql import GPUS
from llm_serving_dashboards.panels import Column, Panel, Query, Unit
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import NO_PRICE, REASONS, SPENT_ON, TARGET, make_table, make_time_series

_ENGINE = ("target", "model_name", "role", "engine")
_OF_ENGINE = "engine {{engine}}"
# a variable with the cards of the replica
ITS_GPUS = "its_gpus"


def make_engine_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    """Latencies, ceilings and the batch by engine."""
    latencies = queries.select_one("window_latency_seconds", *_ENGINE, "latency", "rank", matchers='rank=~"p50|p99"')
    ceiling = queries.select_one("decode_ceiling_tokens_per_second", *_ENGINE)
    decode = queries.aggregate(
        "sum", queries.select("engine:llm_serving_phase_tokens:rate5m", phase="decode"), *_ENGINE
    )
    return (
        make_time_series(
            "Latency quantiles",
            "Over the exporter's window, one minute by default.",
            Unit.SECONDS,
            Query(latencies, f"{{{{latency}}}} {{{{rank}}}} {_OF_ENGINE}"),
            width=6,
            logarithmic=True,
            may_be_empty="no request has ended",
        ),
        make_time_series(
            "Share of busy time by phase",
            "Share of time that each phase needs at its ceiling.",
            Unit.RATIO,
            Query(queries.select_one("phase_busy_ratio", *_ENGINE, "phase"), f"{{{{phase}}}} {_OF_ENGINE}"),
            width=6,
            minimum=0,
            may_be_empty="its model's size or its GPU is not known",
        ),
        make_time_series(
            "MBU by source",
            "Sources: gpm and dcgm are measured, model is computed from steps and context, runtime is the engine's own estimate.",
            Unit.RATIO,
            Query(queries.select("engine:llm_serving_bandwidth_ceiling_ratio:max"), f"{{{{source}}}} {_OF_ENGINE}"),
            width=6,
            minimum=0,
            may_be_empty="its model's size or its GPU is not known",
        ),
        make_time_series(
            "Memory traffic and its peak",
            "Sum over its GPUs, by source.",
            Unit.BYTES_PER_SECOND,
            Query(
                queries.select("engine:llm_serving_achieved_bandwidth_bytes_per_second:max"),
                f"{{{{source}}}} {_OF_ENGINE}",
            ),
            Query(queries.select_one("bandwidth_ceiling_bytes_per_second", *_ENGINE), f"peak {_OF_ENGINE}"),
            width=6,
            minimum=0,
            may_be_empty="its model's size or its GPU is not known",
        ),
        make_time_series(
            "Decode tokens/s and their ceiling",
            "Generated tokens, and the most that is possible at the present batch and context with one token per step.",
            Unit.TOKENS_PER_SECOND,
            Query(decode, f"decode {_OF_ENGINE}"),
            Query(ceiling, f"ceiling {_OF_ENGINE}"),
            width=6,
            minimum=0,
            may_be_empty="its model's size or its GPU is not known",
        ),
        make_table(
            "Evidence of the limiter",
            "The present figures that decide what limits it.",
            (Column("evidence", "evidence"), Column(0, "value", Unit.COUNT, decimals=2)),
            queries.select_one("limiter_evidence", "target", "evidence"),
            width=6,
            may_be_empty="the limiter is not known",
        ),
        make_time_series(
            "Batch and its ridge",
            "Decoding sequences per step, and the batch from which decode is compute-bound.",
            Unit.COUNT,
            Query(queries.select_one("batch_size_mean", *_ENGINE), f"batch {_OF_ENGINE}"),
            Query(queries.select_one("batch_ridge_size", *_ENGINE, "part"), f"ridge ({{{{part}}}}) {_OF_ENGINE}"),
            width=6,
            minimum=0,
            logarithmic=True,
            may_be_empty="its model's size or its GPU is not known",
        ),
        make_time_series(
            "Finished requests/s by reason",
            "Stop and length are successes. Error is a failure. Abort: the client gave up.",
            Unit.REQUESTS_PER_SECOND,
            Query(_rate(queries, "requests_finished_total", "reason"), "{{reason}}"),
            width=6,
            minimum=0,
            stacked=True,
            series_colours=REASONS,
            may_be_empty="no exporter scrapes it",
        ),
    )


def _rate(queries: QueryBuilder, counter: str, label: str) -> str:
    rate = queries.dialect.one(f"rate({queries.select_scraped(counter)}[$__rate_interval])", *_ENGINE, label)
    return queries.aggregate("sum", rate, label)


def make_gpu_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    """The long-context tail, and the GPUs that work for it."""
    its = f'gpu=~"${ITS_GPUS}"'

    def of_its_gpus(name: str, *extra: str, **equal: str) -> str:
        return queries.dialect.by_gpu(
            queries.select_scraped(name, its, **equal), *extra, gpus=queries.select(GPUS, its)
        )

    def draw(title: str, about: str, unit: Unit, *drawn: Query, width: int = 8) -> Panel:
        return make_time_series(title, about, unit, *drawn, width=width, height=7, minimum=0, may_be_empty="its GPUs are not known")  # fmt: skip

    fit = queries.select_one("long_context_requests_fit", *_ENGINE, "bound")
    share = queries.select_one("long_context_kv_share_ratio", *_ENGINE, "bound")
    return (
        make_time_series(
            "Long requests that fit",
            "Requests with a p99 prompt and a mean answer that fit at once. Both bounds come from bucket edges.",
            Unit.COUNT,
            Query(fit, f"{{{{bound}}}} {_OF_ENGINE}"),
            width=6,
            height=7,
            minimum=0,
            may_be_empty="too few requests have ended",
        ),
        make_time_series(
            "KV cache share of the longest 1 %",
            "Share of the context tokens that the longest 1 % of requests hold, with both bounds.",
            Unit.RATIO,
            Query(share, f"{{{{bound}}}} {_OF_ENGINE}"),
            width=6,
            height=7,
            minimum=0,
            maximum=1,
            may_be_empty="too few requests have ended",
        ),
        make_time_series(
            "Preemptions in 10m",
            "How often a running request lost its KV cache to others.",
            Unit.COUNT,
            Query(queries.select("target:llm_serving_preemptions:increase10m"), TARGET),
            width=6,
            height=7,
            minimum=0,
            may_be_empty="the engine does not count them",
        ),
        draw(
            "GPU memory bandwidth",
            "Memory traffic of each of its GPUs over the theoretical peak (GPM: Hopper and newer).",
            Unit.RATIO,
            Query(of_its_gpus("gpu_dram_bandwidth_ratio"), "{{gpu}}"),
            width=6,
        ),
        draw(
            "GPU power",
            "Power draw of each of its GPUs, and its limit.",
            Unit.WATTS,
            Query(of_its_gpus("gpu_power_watts"), "{{gpu}}"),
            Query(of_its_gpus("gpu_power_limit_watts"), "limit {{gpu}}"),
        ),
        draw(
            "GPU clock",
            "Clock of the streaming multiprocessors of each of its GPUs. A GPU with a lower clock than the others is too hot, or its power is capped.",
            Unit.HERTZ,
            Query(of_its_gpus("gpu_clock_hertz", domain="sm"), "{{gpu}}"),
        ),
        draw(
            "GPU temperature",
            "Temperature of each of its GPUs, by sensor.",
            Unit.CELSIUS,
            Query(of_its_gpus("gpu_temperature_celsius", "sensor"), "{{sensor}} {{gpu}}"),
        ),
    )


def make_trust_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    """What it costs, how it compares, and which of its signals can be trusted."""
    spent = queries.aggregate("sum", queries.select("target:llm_serving_cost_usd:increase1h"), "phase")
    missing = queries.select_one("signal_available", "target", "signal", "reason", holds="== 0")
    suspect = queries.select_one("signal_suspect", "target", "signal", "cause", holds="== 1")
    return (
        make_time_series(
            "USD per hour by use",
            "Prefill, decode, idle, down and unattributed time add up to all its GPU time.",
            Unit.USD,
            Query(spent, "{{phase}}"),
            width=8,
            minimum=0,
            stacked=True,
            series_colours=SPENT_ON,
            may_be_empty=NO_PRICE,
        ),
        make_time_series(
            "Restarts",
            "Restarts of the server since its exporter first scraped it.",
            Unit.COUNT,
            Query(queries.select_one("target_restarts_total", "target"), TARGET),
            width=8,
            minimum=0,
            decimals=0,
            may_be_empty="no exporter scrapes it",
        ),
        make_time_series(
            "Age of the last good page",
            "Rises while it does not answer. After three scrape intervals its serving series are absent.",
            Unit.SECONDS,
            Query(queries.select_one("target_sample_age_seconds", "target"), TARGET),
            width=8,
            minimum=0,
            may_be_empty="no exporter scrapes it",
        ),
        make_table(
            "Missing signals, and why",
            "METRICS.md and the exporter's landing page explain the reasons. A missing signal is not zero.",
            (Column("signal", "signal"), Column("reason", "reason", width=200)),
            missing,
            width=9,
            height=10,
            may_be_empty="no exporter reports a missing signal",
        ),
        make_table(
            "Suspect signals",
            "Signals with impossible values, and the likely cause.",
            (Column("signal", "signal"), Column("cause", "likely cause", width=150)),
            suspect,
            width=6,
            height=10,
            may_be_empty="no exporter reports a suspect signal",
        ),
        make_time_series(
            "Failed scrapes by reason",
            "Failed scrapes in 5m by the stage at which they ended, with the reason of the last one.",
            Unit.COUNT,
            Query(queries.select("target:llm_serving_scrape_failures:increase5m"), "{{stage}} {{reason}}"),
            width=9,
            height=10,
            minimum=0,
            may_be_empty="no exporter reports a failed scrape",
        ),
    )

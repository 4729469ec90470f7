"""What only dashboards read: by replica, engine or GPU, recorded so that a day of two hundred replicas is drawn within a second."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import ENGINE, MODEL, Dialect, clauses, series
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.records.traffic import RATE_SECONDS, common_edges
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record
from llm_serving_alerts.settings import Settings

_PROMPTS = "request_prompt_tokens"
# of a figure that each target has
MEDIAN = "model:llm_serving_{name}:median_of_targets"


def views(dialect: Dialect, settings: Settings) -> Group:
    """One value where there are several exporters. Of states, reasons and failures only those that hold: most do not."""
    steps = dialect.one(series("step_bytes_mean"), *ENGINE, "part")
    return Group(
        "llm-serving.views",
        (
            Record(
                "target:llm_serving_state:max",
                f"{dialect.one(series('target_state'), 'target', 'state')} == 1",
                "1 for the state that a target is in",
            ),
            Record(
                "target:llm_serving_scrape_failures:increase5m",
                _count_failures(dialect),
                "failed attempts of 5m by stage, where there were any, with the reason of the last one at that stage",
            ),
            Record(
                "gpu:llm_serving_gpu_slowdown:max",
                f"{dialect.by_gpu(series('gpu_slowdown') + ' == 1', 'reason')}",
                "1 for a reason that holds a GPU's clocks down",
            ),
            Record(
                "gpu:llm_serving_gpu_memory_used:ratio",
                f"{dialect.bare(series('gpu_memory_used_bytes'), 'gpu')} / {dialect.by_gpu(series('gpu_memory_total_bytes'))}",
                "share of a GPU's memory in use",
            ),
            *(
                Record(f"engine:llm_serving_{name}:max", dialect.one(series(name), *ENGINE, "source"), about)
                for name, about in (
                    ("bandwidth_ceiling_ratio", "share of the peak bandwidth in use, by source"),
                    ("achieved_bandwidth_bytes_per_second", "memory traffic, by source"),
                )
            ),
            Record(
                "model:llm_serving_step_bytes_mean:avg",
                f"avg by ({dialect.labels(*MODEL)}, part) ({steps})",
                "bytes that a mean step moves, mean of the engines",
            ),
            Record(
                "model:llm_serving_gpu_memory_bytes_estimate:sum",
                f"sum by ({dialect.labels(*MODEL)}, part) ({dialect.one(series('gpu_memory_bytes_estimate'), *ENGINE, 'part')})",
                "GPU memory of all engines by what takes it up, an estimate",
            ),
            *_list_by_model(dialect),
            Record(
                f"model:llm_serving_{_PROMPTS}_bucket:rate5m",
                common_edges(dialect, _PROMPTS),
                "finished requests/s up to each edge of their prompts' lengths, at the edges that all engines have",
            ),
        ),
        MINUTELY_SECONDS / dialect.time_scale,
    )


def _list_by_model(dialect: Dialect) -> Iterator[Record]:
    """Of each engine's or target's figure one of its model: hundreds of them at each point of a graph take a second."""
    by_model = dialect.labels(*MODEL)
    for name, function, labels, about in (
        ("arithmetic_intensity_flops_per_byte", "avg", (), "FLOPs per byte of memory traffic, mean of the engines"),
        ("ridge_flops_per_byte", "avg", (), "the intensity above which compute is the limit, mean of the engines"),
        ("batch_ridge_size", "avg", ("part",), "batch from which decode is compute-bound, mean of the engines"),
        ("decode_ceiling_tokens_per_second", "sum", (), "decode tokens/s that are possible on all engines"),
        ("phase_busy_ratio", "avg", ("phase",), "share of time that a phase needs at its ceiling, mean of the engines"),
        ("phase_reference_seconds_per_token", "avg", ("phase",), "time per token at the ceilings, mean of the engines"),
    ):
        by, one = ", ".join((by_model, *labels)), dialect.one(series(name), *ENGINE, *labels)
        yield Record(f"model:llm_serving_{name}:{function}", f"{function} by ({by}) ({one})", about)
    whose = f"on ({dialect.key('target')}) group_left ({', '.join(dict.fromkeys((*dialect.own, *MODEL)))}) {DOWN} * 0"
    yield Record(
        "model:llm_serving_signals:sum",
        f"sum by ({by_model}, state) ({dialect.bare(series('signals'), 'target', 'state')} + {whose})",
        "signals of all targets, available and absent",
    )
    for name, about in (
        ("target_sample_age_seconds", "age of the last good page"),
        ("scrape_duration_seconds", "duration of the last scrape"),
        ("scrape_page_bytes", "size of a metrics page"),
        ("unmapped_families", "metric families that the exporter does not know"),
    ):
        figures = f"{dialect.bare(series(name), 'target')} + {whose}"
        yield Record(
            MEDIAN.format(name=name),
            f"quantile by ({by_model}) (0.5, {figures})",
            f"median across a model's targets: {about}",
        )


def _count_failures(dialect: Dialect) -> str:
    """An exporter of an older version counts by reason, too, and says no last failure: of that there is no reason here."""
    of_stage = dialect.key("target", "stage")
    grown = f"sum without (reason) ({dialect.increase(series('scrape_failures_total'), RATE_SECONDS)})"
    failed = f"{dialect.one(grown, 'target', 'stage')} > 0"
    # of several exporters the one that failed last
    last = f"topk by ({of_stage}) (1, {dialect.bare(series('target_last_failure_timestamp_seconds'), 'target', 'stage', 'reason')})"
    return clauses(
        (
            "with the reason of the last failure at that stage",
            f"({failed}) + on ({of_stage}) group_left (reason) {last} * 0",
        ),
        ("or without, where the last failure was at another stage", f"or on ({of_stage}) {failed}"),
    )

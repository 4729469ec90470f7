"""The KV cache: use, prefix hits, preemptions, and the long tail."""

from __future__ import annotations

from llm_serving_alerts.promql import ENGINE, MODEL, TARGET, Dialect, clauses, series
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record, write_records
from llm_serving_alerts.settings import Settings

HITS, QUERIES = "prefix_cache_hit_tokens", "prefix_cache_query_tokens"


def kv(dialect: Dialect, settings: Settings) -> tuple[Group, Group]:
    """Numerators and denominators beside each ratio: gauges at each moment, counters once a minute."""
    return (
        Group("llm-serving.kv", tuple(_gauges(dialect))),
        Group("llm-serving.kv.counted", tuple(_counted(dialect, settings)), MINUTELY_SECONDS),
    )


def _gauges(dialect: Dialect) -> list[Record]:
    by_target, by_model = dialect.labels(*TARGET), dialect.labels(*MODEL)
    rules = [
        *write_records(f"""
            ## share of an engine's KV cache that live requests hold
            engine:llm_serving_kv_cache_usage_ratio:max = {dialect.one(series("kv_cache_usage_ratio"), *ENGINE)}
            ## its mean over 5m
            engine:llm_serving_kv_cache_usage_ratio:avg5m =
              {dialect.apply_over_time("avg_over_time", "engine:llm_serving_kv_cache_usage_ratio:max", 300)}
            ## the fullest engine's
            model:llm_serving_kv_cache_usage_ratio:max = max by ({by_model}) (engine:llm_serving_kv_cache_usage_ratio:max)
        """)
    ]
    for gauge, about in (
        ("kv_cache_used_tokens", "KV tokens that live requests hold"),
        ("kv_cache_capacity_tokens", "KV tokens that fit"),
        ("batch_limit_requests", "requests that may run at once"),
    ):
        one = dialect.one(series(gauge), *ENGINE)
        rules.append(Record(f"target:llm_serving_{gauge}:sum", f"sum by ({by_target}) ({one})", about))
        rules.append(
            Record(f"model:llm_serving_{gauge}:sum", f"sum by ({by_model}) (target:llm_serving_{gauge}:sum)", about)
        )
    rules += write_records("""
        ## share of all KV tokens of a model in use
        model:llm_serving_kv_cache_usage:ratio =
          model:llm_serving_kv_cache_used_tokens:sum / (model:llm_serving_kv_cache_capacity_tokens:sum > 0)
    """)
    limited = (
        f"engine:llm_serving_requests_running:max and on ({dialect.key(*ENGINE)}) {series('batch_limit_requests')}"
    )
    rules += write_records(f"""
        ## running requests over the limit, of the engines whose limit is known
        model:llm_serving_batch_utilization:ratio = sum by ({by_model}) ({limited}) / (model:llm_serving_batch_limit_requests:sum > 0)
    """)
    return rules


def _counted(dialect: Dialect, settings: Settings) -> list[Record]:
    by_target, by_model = dialect.labels(*TARGET), dialect.labels(*MODEL)
    rules = []
    for name, about in ((QUERIES, "tokens looked up in the prefix cache"), (HITS, "looked-up tokens that were there")):
        rate = dialect.one(dialect.rate(series(f"{name}_total"), 300), *ENGINE)
        rules.append(
            Record(f"model:llm_serving_{name}:rate5m", f"sum by ({by_model}) ({rate})", f"{about}, per second")
        )
        increase = dialect.one(dialect.increase(series(f"{name}_total"), 1800), *ENGINE)
        settled = f"sum by ({by_target}) ({increase}) and on ({by_target}) target:llm_serving_settled:max"
        rules += write_records(f"""
            ## {about} in 30m, of settled replicas
            model:llm_serving_{name}:increase30m = sum by ({by_model}) ({settled})
        """)
    least = settings.alerts["HitRateDropped"]["tokens"]
    rules += [
        *write_records(f"""
            ## prefix hit rate over 5m
            model:llm_serving_prefix_cache_hit:ratio_rate5m = model:llm_serving_{HITS}:rate5m / (model:llm_serving_{QUERIES}:rate5m > 0)
            ## prefix hit rate over 30m of settled replicas, where enough was looked up
            model:llm_serving_prefix_cache_hit:ratio_increase30m =
              model:llm_serving_{HITS}:increase30m / (model:llm_serving_{QUERIES}:increase30m >= {least:g})
        """)
    ]
    rules += write_records(f"""
        ## requests that wait though KV cache and batch have room, by what limits their replica
        model:llm_serving_requests_waiting_with_room:sum = {_count_waiting_with_room(dialect, settings.panels.free_kv_below)}
    """)
    for counter, about in (("preemptions", "preemptions in 10m"), ("requests_finished", "finished requests in 10m")):
        labels = (*ENGINE, "reason") if counter == "requests_finished" else ENGINE
        increase = dialect.one(dialect.increase(series(f"{counter}_total"), 600), *labels)
        rules.append(Record(f"target:llm_serving_{counter}:increase10m", f"sum by ({by_target}) ({increase})", about))
    preempted, finished = (
        f"sum by ({by_model}) (target:llm_serving_{counter}:increase10m)"
        for counter in ("preemptions", "requests_finished")
    )
    rules += write_records(f"""
        ## preemptions per finished request in 10m
        model:llm_serving_preemptions_per_request:ratio_increase10m = {preempted} / ({finished} > 0)
    """)
    return rules


def _count_waiting_with_room(dialect: Dialect, free_below: float) -> str:
    on = f"on ({dialect.labels(*ENGINE)})"
    waiting, usage, running = (
        f"engine:llm_serving_{name}:max" for name in ("requests_waiting", "kv_cache_usage_ratio", "requests_running")
    )
    room = clauses(
        ("requests that wait", waiting),
        ("where the KV cache has room", f"and {on} {usage} < {free_below:g}"),
        ("and the batch, too", f"and {on} {running} < {on} {dialect.one(series('batch_limit_requests'), *ENGINE)}"),
    )
    limiter = f"{dialect.one(series('limiter'), *TARGET, 'state')} == 1"
    by_target = dialect.labels(*TARGET)
    placed = f"({limiter}) * on ({by_target}) group_left () sum by ({by_target}) ({room})"
    return f"sum by ({dialect.labels(*MODEL)}, state) ({placed})"


def tail(dialect: Dialect, settings: Settings) -> Group:
    """The long-context tail by model: the engine that is worst off. Estimates, by the exporter's own window and bounds."""
    by_model = dialect.labels(*MODEL)
    rules = []
    for gauge, function, about in (
        (
            "long_context_requests_fit",
            "min",
            "requests of p99 length that fit, by bound, of the engine where fewest do",
        ),
        ("long_context_kv_share_ratio", "max", "share of KV that the longest hundredth holds, by bound"),
    ):
        one = dialect.one(series(gauge), *ENGINE, "bound")
        rules.append(
            Record(f"model:llm_serving_{gauge}:{function}", f"{function} by ({by_model}, bound) ({one})", about)
        )
    for gauge, about in (
        ("long_context_amplification_ratio", "p99 prompt over the mean"),
        ("long_context_requests_observed", "requests behind these estimates"),
        ("long_context_beyond_top_bucket_ratio", "share of prompts above the largest bucket edge"),
    ):
        one = dialect.one(series(gauge), *ENGINE)
        rules.append(Record(f"model:llm_serving_{gauge}:max", f"max by ({by_model}) ({one})", about))
    return Group("llm-serving.tail", tuple(rules), MINUTELY_SECONDS)

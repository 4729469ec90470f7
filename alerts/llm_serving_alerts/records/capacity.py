"""What a replica can do: the best that its kind was seen to do under a queue, else what its roofline promises."""

from __future__ import annotations

from llm_serving_alerts.promql import ENGINE, HOUR, MODEL_GPU, TARGET, WEEK, Dialect, series
from llm_serving_alerts.records.baselines import INTERVAL_SECONDS
from llm_serving_alerts.records.outlier_blocks import FULL
from llm_serving_alerts.records.outliers import OUTLIER
from llm_serving_alerts.records.targets import SETTLED, of_kind
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record
from llm_serving_alerts.settings import Settings

BEST_TOKENS = "model_gpu:llm_serving_replica_tokens_per_second:best"
BEST_WORK = "model_gpu:llm_serving_replica_work:best"
BASIS = "model_gpu:llm_serving_replica_capacity:basis"
# replicas that do one phase only: what they do under a queue is that phase's limit
SPLIT = 'role!="unified"'
CEILINGS = "target:llm_serving_phase_ceiling_tokens_per_second:sum"
_TOKENS = "model_gpu:llm_serving_phase_tokens:max_rate5m"
_WORK = "model_gpu:llm_serving_reference_work:max_rate5m"


def rates(dialect: Dialect, settings: Settings) -> Group:
    """Rates of now by kind of GPU: pods come and go, so that nothing is kept by target."""
    by_target = dialect.labels(*TARGET)
    # a replica that has just come has waited for as long as it has been seen, which is no 5m
    waiting = "target:llm_serving_requests_waiting:sum"
    waited = f"{dialect.apply_over_time('min_over_time', waiting, 300)} > 0 and on ({by_target}) {dialect.offset(waiting, 300)} > 0"
    # in split pools requests also wait for KV that is on its way: there a queue is a limit only where memory or the batch is full
    fullest = f"max by ({by_target}) (engine:llm_serving_kv_cache_usage_ratio:avg5m)"
    of_limit = "target:llm_serving_requests_running:sum / target:llm_serving_batch_limit_requests:sum"
    full = f"({fullest} > {FULL:g} or on ({by_target}) {of_limit} > {FULL:g})"
    # a replica with cold caches, or one that still compiles, shows no limit either
    limited = f'({SETTLED}{{role="unified"}} or on ({by_target}) {SETTLED} and on ({by_target}) {full})'
    rules = []
    for record, rate, extra, about in (
        (_TOKENS, "target:llm_serving_phase_tokens:rate5m", ("phase",), "tokens/s by phase"),
        (_WORK, "target:llm_serving_reference_work:rate5m", (), "reference seconds of work per second"),
    ):
        best = f"max by ({dialect.labels(*MODEL_GPU, *extra)})"
        # nor does one that is unlike its peers: what a sick replica does is not what its kind can do
        under_queue = (
            f"({rate} and on ({by_target}) {waited} and on ({by_target}) {limited} unless on ({by_target}) {OUTLIER})"
        )
        rules += [
            Record(record, f"{best} ({of_kind(dialect, rate)})", f"{about} of the best replica of a kind"),
            Record(
                f"{record}_waiting",
                f"{best} ({of_kind(dialect, under_queue)})",
                f"{about} of the best replica of a kind where requests had waited for 5m",
            ),
        ]
    # while a replica idles it shows no context: its last one holds
    ceiling = dialect.apply_over_time("last_over_time", series("phase_ceiling_tokens_per_second"), HOUR)
    one = dialect.one(ceiling, *ENGINE, "phase")
    about = "what a replica could do of one phase alone, at its ceiling"
    rules.append(Record(CEILINGS, f"sum by ({dialect.labels(*TARGET, 'phase')}) ({one})", about))
    return Group("llm-serving.rates", tuple(rules), MINUTELY_SECONDS / dialect.time_scale)


def capacity(dialect: Dialect, settings: Settings) -> Group:
    """Capacity of one replica of a kind: measured where one was seen under a queue within a week, else estimated, else nothing.

    A replica of mixed load that is at its limit is not at the limit of each phase: one that finds most prompts in its cache computes few
    of them however long its queue. So what it was seen to do under a queue counts as work of both phases together; of one phase alone
    its roofline says more.
    """
    by_kind, by_phase = dialect.labels(*MODEL_GPU), dialect.labels(*MODEL_GPU, "phase")
    promised = f"{settings.node_loss.efficiency:g} * max by ({by_phase}) ({of_kind(dialect, CEILINGS)})"
    seen, limit = (dialect.apply_over_time("max_over_time", record, WEEK) for record in (_TOKENS, f"{_TOKENS}_waiting"))
    seen_work, limit_work = (
        dialect.apply_over_time("max_over_time", record, WEEK) for record in (_WORK, f"{_WORK}_waiting")
    )
    # a replica that stood still while requests waited has shown no limit
    limit, limit_work = f"{limit} > 0", f"{limit_work} > 0"
    # what was reached without a queue can be reached: the limit is at least that
    measured = f"({seen} and on ({by_phase}) {limit})"
    estimated = f"({seen} > on ({by_phase}) {promised} or on ({by_phase}) {promised})"
    of_one_phase = dialect.apply_over_time("max_over_time", f"{_TOKENS}{{{SPLIT}}}", WEEK)
    known = "1 by phase, with how the capacity is known: measured under a queue, or estimated from the roofline"
    return Group(
        "llm-serving.capacity",
        (
            Record(
                BEST_TOKENS,
                f"({of_one_phase} and on ({by_phase}) {limit}) or on ({by_phase}) {estimated} or on ({by_phase}) {measured}",
                "tokens/s by phase that one replica of a kind can do",
            ),
            Record(
                BEST_WORK,
                f"{seen_work} and on ({by_kind}) {limit_work}",
                "reference seconds of work per second of one replica of a kind, where one was seen under a queue",
            ),
            Record(
                BASIS,
                f"({BEST_TOKENS}{{{SPLIT}}} > bool 0) and on ({by_phase}) {limit}"
                f" or ({BEST_TOKENS} > bool 0) and on ({by_kind}) {BEST_WORK}"
                f" or ({BEST_TOKENS} > bool 0) unless on ({by_phase}) {promised}",
                known,
                {"basis": "measured"},
            ),
            Record(
                BASIS,
                f'({BEST_TOKENS} > bool 0) unless on ({by_phase}) {BASIS}{{basis="measured"}}',
                known,
                {"basis": "estimated"},
            ),
        ),
        INTERVAL_SECONDS / dialect.time_scale,
    )

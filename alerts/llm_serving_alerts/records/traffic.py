"""What is served: tokens by phase, requests, queues, latencies with their clipping; and engines that stand still meanwhile."""

from __future__ import annotations

from llm_serving_alerts.promql import ENGINE, MINUTE, MODEL, TARGET, Dialect, buckets, clauses, series
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record, write_records
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.catalogue.health import ASKED_WHETHER_LIVE
from llm_serving_exporter.catalogue.standstill import GIVEN_UP_FROM, LONGER, MOVES, SAYS_WHAT_IS_DONE, SAYS_WHAT_RUNS

# --- What is served: tokens by phase, requests by how they ended, queues, latencies with their clipping.

PHASES = {"prefill": "prefill_tokens_total", "decode": "decode_tokens_total"}
RATE_SECONDS = 300.0
# (histogram, ranges): 10m where an alert asks for a quantile that rests on hundreds of events
LATENCIES = {
    "time_to_first_token_seconds": ("5m", "10m"),
    "inter_token_latency_seconds": ("5m", "10m"),
    "e2e_request_latency_seconds": ("5m",),
    "request_queue_time_seconds": ("5m",),
}
IN_FLIGHT = "engine:llm_serving_requests_in_flight:max"
TENANT_TOKENS = "model:llm_serving_tenant_tokens:rate5m"
RANKS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def traffic(dialect: Dialect, settings: Settings) -> tuple[Group, Group]:
    """Tokens, requests and queues by engine, target and model. What only people look at: once a minute."""
    return (
        Group("llm-serving.traffic", tuple(_tokens_and_queues(dialect))),
        Group("llm-serving.traffic.requests", tuple(_requests(dialect)), MINUTELY_SECONDS),
    )


def _requests(dialect: Dialect) -> list[Record]:
    by_model = dialect.labels(*MODEL)
    rules = []
    for counter, what in (("prompt_tokens_total", "as sent"), ("cached_prompt_tokens_total", "not computed: cached")):
        name = counter.removesuffix("_total")
        rate = dialect.one(dialect.rate(series(counter), RATE_SECONDS), *ENGINE)
        about = f"prompt tokens/s {what}"
        rules.append(Record(f"model:llm_serving_{name}:rate5m", f"sum by ({by_model}) ({rate})", about))
    for counter, about in (
        ("requests_finished_total", "finished requests/s by reason"),
        ("requests_rejected_total", "rejected requests/s by reason"),
    ):
        name = counter.removesuffix("_total")
        rate = dialect.one(dialect.rate(series(counter), RATE_SECONDS), *ENGINE, "reason")
        rules.append(Record(f"model:llm_serving_{name}:rate5m", f"sum by ({by_model}, reason) ({rate})", about))
    for phase, counter in (("prompt", "tenant_prompt_tokens_total"), ("decode", "tenant_decode_tokens_total")):
        rate = dialect.one(dialect.rate(series(counter), RATE_SECONDS), *TARGET, "tenant", "kind")
        about = "tokens/s of a model's tenant by phase, as gateways count them: prompt as sent, decode generated"
        # without the role, which is a gateway's: whoever looks at an engine's role looks at the same requests
        by_tenant = dialect.labels("model_name", "tenant", "kind")
        rules.append(Record(TENANT_TOKENS, f"sum by ({by_tenant}) ({rate})", about, {"phase": phase}))
    return rules


def _tokens_and_queues(dialect: Dialect) -> list[Record]:
    by_target, by_model = dialect.labels(*TARGET), dialect.labels(*MODEL)
    rules = []
    for phase, counter in PHASES.items():
        rate = dialect.one(dialect.rate(series(counter), RATE_SECONDS), *ENGINE)
        rules.append(
            Record("engine:llm_serving_phase_tokens:rate5m", rate, "tokens/s of an engine by phase", {"phase": phase})
        )
    rules += [
        Record(
            f"{level}:llm_serving_phase_tokens:rate5m",
            f"sum by ({by}, phase) (engine:llm_serving_phase_tokens:rate5m)",
            f"tokens/s of a {level} by phase: prefill computed, decode generated",
        )
        for level, by in (("target", by_target), ("model", by_model))
    ]
    rules += write_records(f"""
        ## tokens/s per GPU of the ready replicas
        model:llm_serving_phase_tokens_per_gpu:rate5m = model:llm_serving_phase_tokens:rate5m
          / on ({by_model}) group_left () model:llm_serving_gpus:sum
    """)
    for gauge, about in (("requests_running", "requests in the batch"), ("requests_waiting", "requests that wait")):
        rules.append(Record(f"engine:llm_serving_{gauge}:max", dialect.one(series(gauge), *ENGINE), about))
        for level, by in (("target", by_target), ("model", by_model)):
            rules.append(
                Record(f"{level}:llm_serving_{gauge}:sum", f"sum by ({by}) (engine:llm_serving_{gauge}:max)", about)
            )
    running, waiting = (f"engine:llm_serving_requests_{state}:max" for state in ("running", "waiting"))
    same = dialect.key(*ENGINE)
    rules += write_records(f"""
        ## requests that run or wait; where an engine says no queue, those that run
        {IN_FLIGHT} = {running} + on ({dialect.labels(*ENGINE)}) ({waiting} or on ({same}) {running} * 0)
    """)
    return rules


def workers(dialect: Dialect, record: str) -> str:
    """A model's record by role: of a front end only where its workers are not read."""
    same = dialect.labels("model_name")
    return f'{record}{{role!="frontend"}} or on ({same}) {record}{{role="frontend"}}'


def latency(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """Quantiles from merged buckets, and how much lies above the top finite edge: a quantile there reads "at least"."""
    return tuple(
        Group(
            f"llm-serving.latency.{histogram.removesuffix('_seconds').replace('_', '-')}",
            tuple(rule for span in spans for rule in _latencies(dialect, histogram, span)),
            MINUTELY_SECONDS,
        )
        for histogram, spans in LATENCIES.items()
    )


def _latencies(dialect: Dialect, histogram: str, span: str) -> list[Record]:
    record = f"model:llm_serving_{histogram}_bucket:rate{span}"
    of_5m = f"model:llm_serving_{histogram}_bucket:rate5m"
    rules = [
        *write_records(f"""
            ## events/s up to each edge over {span}, at the edges that all engines have
            {record} = {common_edges(dialect, histogram) if span == "5m" else _over_10m(dialect, of_5m)}
        """)
    ]
    rules += [
        Record(
            f"model:llm_serving_{histogram}:quantile_rate{span}",
            f"histogram_quantile({quantile:g}, {record})",
            f"quantile over {span} by rank; the top finite edge where more than the rest lies above it",
            {"rank": rank},
        )
        for rank, quantile in RANKS.items()
    ]
    # that of 5m says it of both
    if span != "5m":
        return rules
    by = dialect.labels(*MODEL)
    top = f'max by ({by}) ({record}{{le!="+Inf"}})'
    rules += write_records(f"""
        ## share of events above the top finite edge
        model:llm_serving_{histogram}:above_top_edge_ratio_rate{span} = 1 - {top} / (sum by ({by}) ({record}{{le="+Inf"}}) > 0)
    """)
    return rules


def _over_10m(dialect: Dialect, record: str) -> str:
    """Ten minutes from two of five, which lie behind one another: the engines' buckets are not read for it. Of a model that was not there
    five minutes ago nothing was counted before."""
    by, by_edge = dialect.labels(*MODEL), dialect.labels(*MODEL, "le")
    return f"({record} + on ({by_edge}) {dialect.offset(record, RATE_SECONDS)}) / 2 or on ({by}) {record} / 2"


def common_edges(dialect: Dialect, histogram: str) -> str:
    """Buckets of 5m summed over engines, only at the edges that all of them have: a sum over different edges is no histogram. How many
    engines there are is asked of the edge +Inf, which each of them has."""
    by, by_edge = dialect.labels(*MODEL), dialect.labels(*MODEL, "le")

    def engines(matchers: str = "") -> str:
        return dialect.one(dialect.rate(buckets(histogram, matchers), RATE_SECONDS), *ENGINE, "le")

    every = engines('le="+Inf"')
    return (
        f"sum by ({by_edge}) ({engines()})"
        f" and on ({by_edge}) (count by ({by_edge}) ({engines()}) == on ({by}) group_left () count by ({by}) ({every}))"
    )


# --- Engines that stand still while requests wait for them: what LLMServingStalled fires on, and what `outliers` leaves out.

STALLED = "engine:llm_serving_stalled_requests:max"
_MOVES = {name: ",".join(f'reason!="{reason}"' for reason in reasons) for name, reasons in MOVES.items()}


def stalled(dialect: Dialect, settings: Settings) -> Group:
    """Once a minute: the alert does not wait for it."""
    expr = find_stalled(dialect, settings.alerts["Stalled"]["range"])
    records = (Record(STALLED, expr, "requests at each engine that stands still"),)
    return Group("llm-serving.stalled", records, MINUTELY_SECONDS)


def find_stalled(dialect: Dialect, span: float) -> str:
    """PromQL: requests at each engine that has stood still for so many seconds."""
    by_engine, of_target = dialect.key(*ENGINE), dialect.key("target")
    longer = LONGER * span
    least, moments = (dialect.apply_over_time(f"{how}_over_time", IN_FLIGHT, span, MINUTE) for how in ("min", "count"))
    most = dialect.apply_over_time("max_over_time", IN_FLIGHT, longer, MINUTE)
    # whoever waits in front of engines is given up by their clients, too
    aborted = series("requests_finished_total", 'role!="frontend"', reason="abort")
    gave_up = dialect.bare(dialect.increase(aborted, longer), *ENGINE)
    # what a gauge says that is written only while there is work is no request that waits
    runs = f"and on ({of_target}) {dialect.bare(_live(SAYS_WHAT_RUNS), 'target')}"
    held_for_long = clauses(
        ("requests were there for half of a longer time, since clients give up and others come", most),
        ("of which each moment counts", f"and on ({by_engine}) {dialect.half(f'({IN_FLIGHT} > bool 0)', span)}"),
        ("and it says at once what runs", runs),
    )
    come_and_go = clauses(
        ("they come and go", f"({held_for_long})"),
        ("or nobody is let in, and clients give up", f"or on ({by_engine}) round({gave_up}) >= {GIVEN_UP_FROM}"),
    )
    stuck = (
        clauses(
            ("requests were there all the time", f"{least} > 0"),
            # after a restart it has not stood still all along
            ("and the engine was, too", f"and on ({by_engine}) {moments} >= {max(1, int(span / MINUTE))}"),
            ("and nothing has moved", f"and on ({by_engine}) {_moved(dialect, span)} == 0"),
            ("and it says at once what runs", runs),
        ),
        clauses(
            ("or for longer, in other ways", f"({come_and_go})"),
            ("and nothing has moved in that time", f"and on ({by_engine}) {_moved(dialect, longer)} == 0"),
        ),
    )
    flows = dialect.bare(" or ".join(_live(name) for name in SAYS_WHAT_IS_DONE), "target")
    either = f" or on ({by_engine}) ".join(f"({one})" for one in stuck)
    return clauses(
        ("an engine stands still", f"({dialect.one(either, *ENGINE)})"),
        ("that counts its tokens or its steps as they are made", f"and on ({of_target}) {flows}"),
        ("and answers as if it were ready", f"and on ({of_target}) {series('target_state', state='ready')} == 1"),
    )


def _moved(dialect: Dialect, span: float) -> str:
    by_engine = dialect.key(*ENGINE)
    each = " or ".join(
        f'label_replace(sum by ({by_engine}) ({dialect.increase(series(name, matchers), span)}), "of", "{name}", "", "")'
        for name, matchers in _MOVES.items()
    )
    return f"sum by ({by_engine}) ({each})"


def _live(signal: str) -> str:
    if signal not in ASKED_WHETHER_LIVE:
        raise ValueError(f"{signal} is not in ASKED_WHETHER_LIVE: the exporter does not say whether it is live")
    return f"{series('signal_quality', signal=signal, quality='live')} == 1"

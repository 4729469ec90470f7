"""Forecast and settings -> plan: whether the drill may begin, what may be lost, and which alerts must come."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_drill import names
from llm_serving_drill.course import Bounds, Forecast, Phase, Plan, Reading, Settings
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import NOTHING, count, seconds, share, span

# --- What a reading means in words: bounds that are reached, and lines of progress.


def format_ttft(value: float | None, at_least: bool) -> str:
    """A p99; "at least" where it lies above the histogram's top finite edge."""
    return seconds(value) if value is None or not at_least else f"at least {seconds(value)}"


def find_bound_reached(reading: Reading, bounds: Bounds) -> str:
    """The bound on errors or latency that a reading is beyond, "" for none. What is not known is beyond nothing."""
    errors, p99 = reading.errors_ratio, reading.p99_ttft_seconds
    if bounds.errors_ratio is not None and errors is not None and errors > bounds.errors_ratio:
        return f"{share(errors)} of the requests failed, more than {share(bounds.errors_ratio)} (--max-errors-ratio)"
    if bounds.ttft_seconds is not None and p99 is not None and p99 > bounds.ttft_seconds:
        p99_words = format_ttft(p99, reading.ttft_at_least)
        return f"p99 time to first token is {p99_words}, more than {seconds(bounds.ttft_seconds)} (--max-ttft)"
    return ""


def find_excess_loss(before: Reading, reading: Reading, may_lose: int | None) -> str:
    """Why more is gone than was meant to go, "" where not or where that cannot be told."""
    if before.ready is None or reading.ready is None:
        return ""
    lost = before.ready - reading.ready
    if may_lose is not None and lost > may_lose:
        return f"{count_nouns(round(lost), 'replica is', 'replicas are')} gone, {count_nouns(may_lose, 'was', 'were')} meant to go"
    return ""


def format_progress(phase: Phase, reading: Reading | None, elapsed_seconds: float) -> str:
    """One line for a terminal."""
    if reading is None:
        return f"{span(elapsed_seconds):>12}  {phase.value}"
    wanted = "" if reading.desired is None else f" of {count(reading.desired)}"
    p99 = format_ttft(reading.p99_ttft_seconds, reading.ttft_at_least)
    kv = share(reading.kv_usage_ratio) if reading.kv_usage_ratio is not None else NOTHING
    return (
        f"{span(elapsed_seconds):>12}  {phase.value}: {count(reading.ready)}{wanted} ready, p99 TTFT {p99}, "
        f"queue {count(reading.waiting)}, KV {kv}"
    )


# --- The plan


# that are listed where the drilled one is not among them
_MOST_MODELS = 20


def make_plan(forecast: Forecast, settings: Settings) -> Plan:
    """What will be done. A refusal of a watched drill is a note: what is going to happen happens, and nobody meant a node."""
    node = settings.node or (None if settings.watch else _fullest(forecast))
    may_lose = settings.bounds.lost_replicas
    if may_lose is None and node is not None:
        may_lose = forecast.replicas_by_node.get(node)
    required = settings.expected_alerts or ()
    by_rule = names.ALERTS if settings.expected_alerts is None else ()
    why_not = tuple(_refusals(forecast, settings, may_lose, (*required, *by_rule)))
    notes = list(_notes(forecast, settings, node))
    if settings.watch:
        notes += [f"this would be a reason not to trigger one: {reason}" for reason in why_not]
    elif settings.force:
        notes += [f"forced, although {reason}" for reason in why_not]
    return Plan(node, may_lose, required, by_rule, () if settings.watch else why_not, tuple(notes))


def _fullest(forecast: Forecast) -> str | None:
    """The node with the most replicas; of equals the one with the largest capacity, then the first by name."""
    if not forecast.replicas_by_node:
        return forecast.largest_node
    return min(
        forecast.replicas_by_node,
        key=lambda node: (-forecast.replicas_by_node[node], node != forecast.largest_node, node),
    )


def _refusals(forecast: Forecast, settings: Settings, may_lose: int | None, alerts: tuple[str, ...]) -> Iterator[str]:
    now = forecast.reading
    if now.ready is None:
        yield f"Prometheus has no ready replicas of this model and role recorded ({names.READY}); {_name_others(forecast)}"
        return
    yield from _redundancy(now)
    if now.desired is not None and now.ready < now.desired:
        yield f"a replica is missing already: {count(now.ready)} of {count(now.desired)} wanted ones are ready"
    if settings.node is not None and forecast.replicas_by_node and settings.node not in forecast.replicas_by_node:
        nodes = ", ".join(sorted(forecast.replicas_by_node))
        yield f"no ready replica stands on the node {settings.node}; known are {nodes}"
    if may_lose is None and not settings.watch:
        yield (
            "nothing says how many replicas stand on a node (target_node_info), so that too great a loss could not be told; "
            "give --max-lost"
        )
    yield from _alerting(forecast, settings, alerts)
    reached = find_bound_reached(now, settings.bounds)
    if reached:
        yield f"a bound is reached before anything is lost: {reached}"


def _name_others(forecast: Forecast) -> str:
    """What to do where nothing is recorded of the model and role that were asked for."""
    if not forecast.others:
        return "it has none of any model, so check that the recording rules are loaded and --prometheus.url"
    models = [f"{model} ({role})" for model, role in forecast.others]
    more = f" and {len(models) - _MOST_MODELS} more" if len(models) > _MOST_MODELS else ""
    return f"check --model, --role and --selector: it has {', '.join(models[:_MOST_MODELS])}{more}"


def _redundancy(now: Reading) -> Iterator[str]:
    if now.nodes is not None and now.nodes <= 1:
        yield "one node serves the model: nothing would be left"
    elif now.n1_sufficient is None:
        yield "N-1 is unknown (model:llm_serving_n1_sufficient:bool is absent): a resource's capacity or demand is not known"
    elif not now.n1_sufficient:
        worst = max(now.n1_load, key=lambda resource: now.n1_load[resource], default=None)
        which = "" if worst is None else f": {share(now.n1_load[worst])} of what is left of {worst} would be needed"
        yield f"N-1 says that the survivors cannot carry the demand of the last hour{which}"


def _alerting(forecast: Forecast, settings: Settings, alerts: tuple[str, ...]) -> Iterator[str]:
    if settings.expected_alerts is None:
        if names.REPLICA_LOST not in forecast.rules:
            yield (
                f"Prometheus evaluates no alert {names.REPLICA_LOST}, so that nobody would be told; "
                "load the alert rules, or name what should come with --expect-alert (none for nothing)"
            )
        elif forecast.reading.desired is None:
            yield (
                "nothing says how many replicas are wanted, so that no alert about a lost one can fire; set expected_replicas or a "
                "workload of the rules, or give --expect-alert none"
            )
    else:
        for name in alerts:
            if name not in forecast.rules:
                yield f"Prometheus evaluates no alert {name}"
    for alert in forecast.active:
        if alert.name in alerts:
            yield f"{alert.name} is {'firing' if alert.firing else 'pending'} already, so that its arrival could not be told"


def _notes(forecast: Forecast, settings: Settings, node: str | None) -> Iterator[str]:
    largest = forecast.largest_node
    if node is not None and largest is not None and node != largest:
        yield f"the forecast takes away the largest node of each resource, which by KV capacity is {largest}, not {node}"
    if settings.expected_alerts == ():
        yield "no alert is expected: whether somebody would be told is not part of this drill"

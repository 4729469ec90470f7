"""Days of a simulated fleet as an exporter would have shown them, and the rules over them: vmalert's replay on VictoriaMetrics."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from llm_serving_alerts.external import FIRING
from llm_serving_alerts.render import groups_text, rule_groups
from llm_serving_alerts.rules import AlertRule, Group, Record
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.model.cost import Power, PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.history import Sample, Watch
from llm_serving_simulator.fleet.scenario import Event, Scenario, load
from llm_serving_simulator.fleet.workload import DAY_SECONDS, Step
from tests.e2e.stack import settings_of
from tests.support.builders.fleet_history import Form, write_history
from tests.support.servers.victoriametrics import VictoriaMetrics, replay

MINUTE, HOUR = 60.0, 3600.0
# a Wednesday at 0:00 UTC, as the scenario begins
BEGIN_UNIX_SECONDS = 1_704_240_000.0
# calm-day says nothing of weekends
WEEKEND = 0.4
WATCHDOG = "LLMServingWatchdog"
INSTANCE = "exporter:10077"
USD_PER_GPU_HOUR = 2.0

# what an exporter says of itself, and an Alertmanager of its notifications, beside what the fleet's pages yield
ALWAYS: tuple[Sample, ...] = (
    ("llm_serving_exporter_build_info", {"version": "1.0.0"}, 1.0),
    ("llm_serving_exporter_config_reload_success", {}, 1.0),
    # last week's cost review came an hour after it was due
    ("llm_serving_report_due_timestamp_seconds", {}, BEGIN_UNIX_SECONDS - 2 * DAY_SECONDS),
    # and the next one is not due before the end
    ("llm_serving_report_next_due_timestamp_seconds", {}, BEGIN_UNIX_SECONDS + 19 * DAY_SECONDS),
    ("llm_serving_report_last_success_timestamp_seconds", {}, BEGIN_UNIX_SECONDS - 2 * DAY_SECONDS + HOUR),
    ("process_start_time_seconds", {}, BEGIN_UNIX_SECONDS - DAY_SECONDS),
    ("alertmanager_notifications_failed_total", {"integration": "pagerduty"}, 0.0),
    ("alertmanager_notifications_total", {"integration": "pagerduty"}, 1.0),
)
_READ = re.compile(r"(?<![:\w])(llm_serving_\w+|process_\w+|alertmanager_\w+)\b")
_RECORDED = re.compile(r"\b\w+:llm_serving_\w+:\w+\b")


@dataclass(frozen=True)
class Replayed:
    """What the rules made of a history. `fired`: alerts with the second of the history at which one of the name first did;
    `minutes`: how many of them the watchdog saw; `recorded`: names of recorded series.

    `tokens`: by phase what was recorded and what the fleet counted itself, in the history's last `counted_seconds`. `spend`: USD of GPU
    time in that time, recorded hour by hour, and as the GPUs' price makes it; `per_million`: USD per million tokens of the last six hours.
    """

    fired: Mapping[str, float]
    minutes: int
    recorded: frozenset[str]
    tokens: Mapping[str, tuple[float, int]]
    spend: tuple[float, float]
    per_million: tuple[float, float]


def calm(
    *,
    days: float,
    from_hour: float = 0.0,
    events: Iterable[Event] = (),
    rates: Iterable[Step] = (),
    engine: Mapping[str, Any] | None = None,
) -> Scenario:
    """The scenario calm-day for so many days from a Wednesday on, with quieter weekends; `events` and `rates` end the calm.

    `engine`: fields of its engines that differ.
    """
    day = load("calm-day")
    begins = day.rate.daily.begins_seconds + from_hour * HOUR
    daily = replace(day.rate.daily, weekend=WEEKEND, begins_seconds=begins)
    return replace(
        day,
        rate=replace(day.rate, daily=daily, steps=tuple(rates)),
        replicas=tuple(replace(one, engine=replace(one.engine, **(engine or {}))) for one in day.replicas),
        duration_seconds=days * DAY_SECONDS,
        events=tuple(events),
        history=None,
    )


def settings_for(scenario: Scenario) -> Settings:
    """The scenario's objectives, at a sample a minute."""
    return replace(settings_of(scenario), scrape_interval_seconds=MINUTE)


def replayed(scenario: Scenario, folder: Path, counted_seconds: float) -> Replayed:
    """Simulates a scenario, writes what its exporter would have shown each minute, and evaluates every rule over it, step by step."""
    groups = rules_in_order(settings_for(scenario))
    with VictoriaMetrics(folder) as database:
        with database.importing() as out:
            fleet = write(scenario, groups, out)
        begin, end = BEGIN_UNIX_SECONDS, BEGIN_UNIX_SECONDS + scenario.duration_seconds
        for number, together in enumerate(steps(groups)):
            file = folder / f"rules-{number}.yml"
            file.write_text(groups_text(together))
            replay(folder, database, [file], begin, end)
        told = fleet.truth(scenario.duration_seconds - counted_seconds, scenario.duration_seconds)
        rate, range_ = "model:llm_serving_phase_tokens:rate5m", f"[{counted_seconds:.0f}s]"
        tokens = {
            phase: (database.value(f'sum(sum_over_time({rate}{{phase="{phase}"}}{range_})) * {MINUTE}', end), counted)
            for phase, counted in (("prefill", told.prefill_tokens), ("decode", told.decode_tokens))
        }
        gpus, hours = sum(replica.engine.gpus for replica in scenario.replicas), math.floor(counted_seconds / HOUR)
        spent = f"sum(sum_over_time(model:llm_serving_cost_usd:increase1h[{hours}h:1h]))"
        spend = database.value(spent, end), USD_PER_GPU_HOUR * gpus * hours
        six = fleet.truth(scenario.duration_seconds - 6 * HOUR, scenario.duration_seconds)
        served = six.counts.prompt_tokens + six.decode_tokens
        million = 'sum(model:llm_serving_cost_usd_per_million_tokens:ratio6h{phase="blended",basis="allocated"})'
        per_million = database.value(million, end), 1e6 * USD_PER_GPU_HOUR * gpus * 6 / served
        alerts = database.export('ALERTS{alertstate="firing"}')
        names = frozenset(database.names(begin))
    fired: dict[str, float] = {}
    for labels, stamps, _values in alerts:
        name = labels["alertname"]
        fired[name] = min(stamps[0] - begin, fired.get(name, math.inf))
    minutes = sum(len(stamps) for labels, stamps, _values in alerts if labels["alertname"] == WATCHDOG)
    return Replayed(fired, minutes, names & recorded_by(groups), tokens, spend, per_million)


def write(scenario: Scenario, groups: Iterable[Group], out: TextIO) -> Fleet:
    """What the rules read of the scenario, as lines for an import; the fleet at its end."""
    fleet = scenario.fleet(epoch_unix_seconds=BEGIN_UNIX_SECONDS)
    watch = Watch(
        fleet,
        interval_seconds=MINUTE,
        wanted=read_by(groups),
        slo=scenario.slo,
        expected_replicas=scenario.expected_replicas,
        gpus=True,
        prices=prices_of(scenario),
    )
    write_history(
        fleet,
        watch,
        out,
        until_seconds=scenario.duration_seconds,
        interval_seconds=MINUTE,
        form=Form.VICTORIAMETRICS,
        labels={"job": "llm-serving", "instance": INSTANCE},
        more=lambda _unix, _found: ALWAYS,
    )
    return fleet


def prices_of(scenario: Scenario) -> PriceBook:
    """What its GPUs cost, electricity apart, and a budget that they stay within."""
    owned = Rate("owned", RateKind.OWNED, includes_power=False)
    kinds = {replica.engine.gpu_spec.name for replica in scenario.replicas}
    statements = tuple(PriceStatement(Scope.GPU_MODEL, kind, USD_PER_GPU_HOUR, owned.name) for kind in sorted(kinds))
    return PriceBook(statements, (owned,), Power(0.12, 1.3, 350.0), budget_usd_per_month=1e6)


def read_by(groups: Iterable[Group]) -> frozenset[str]:
    """The scraped series that rules read."""
    return frozenset(name for group in groups for rule in group.rules for name in _READ.findall(rule.expr))


def rules_in_order(settings: Settings) -> tuple[Group, ...]:
    """Recording rules and alerts, as the rule files have them but for annotations: a replay knows no `query` in a template."""
    return tuple(
        replace(group, rules=tuple(map(_without_annotations, group.rules)))
        for found in rule_groups(settings).values()
        for group in found
    )


def _without_annotations(rule: Record | AlertRule) -> Record | AlertRule:
    return replace(rule, annotations={}) if isinstance(rule, AlertRule) else rule


def steps(groups: Iterable[Group]) -> list[tuple[Group, ...]]:
    """The same rules, those together that read nothing which another of them records: the first step reads scraped series only. What goes
    by alerts that fire comes last.

    Raises ValueError where a rule reads what is recorded after it, which by a live server would be a minute old. Its own past a rule may
    read: here it has none, as when it is loaded for the first time.
    """
    done: dict[str, int] = {}
    found: list[dict[str, Group]] = []
    for group in sorted(groups, key=_reads_alerts):
        after_alerts = len(found) if _reads_alerts(group) else 0
        for rule in group.rules:
            own = {rule.record} if isinstance(rule, Record) and rule.record not in done else set[str]()
            reads = set(_RECORDED.findall(rule.expr)) - own
            if later := reads - done.keys():
                raise ValueError(f"{group.name}: {sorted(later)} are recorded later, or nowhere")
            number = max([after_alerts, *(done[name] + 1 for name in reads)])
            if number == len(found):
                found.append({})
            before = found[number].get(group.name, replace(group, rules=()))
            found[number][group.name] = replace(before, rules=(*before.rules, rule))
            if isinstance(rule, Record):
                done[rule.record] = max(number, done.get(rule.record, 0))
    return [tuple(step.values()) for step in found]


def _reads_alerts(group: Group) -> bool:
    return any(FIRING in rule.expr for rule in group.rules)


def recorded_by(groups: Iterable[Group]) -> frozenset[str]:
    """The series that rules record."""
    return frozenset(rule.record for group in groups for rule in group.rules if isinstance(rule, Record))

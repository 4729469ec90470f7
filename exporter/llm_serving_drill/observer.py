"""What Prometheus, Alertmanager and Grafana know of the drilled replicas: their JSON -> values of `course`."""

from __future__ import annotations

import time
from datetime import datetime
from typing import NamedTuple

from llm_serving_drill import names
from llm_serving_drill.course import (
    ActiveAlert,
    AlertRule,
    Baseline,
    Counts,
    Forecast,
    Reading,
    Scope,
    Settings,
    Sighting,
)
from llm_serving_drill.verdict import make_baseline, make_reading
from llm_serving_exporter.clients.json_api import ApiError, JsonApi, Labels, labels_of, understood
from llm_serving_exporter.clients.json_api import Prometheus as QueryApi
from llm_serving_exporter.model.record import replace

# --- Prometheus, Alertmanager and Grafana as a drill asks them: their JSON -> values of `course`.


class Prometheus(QueryApi):
    """Its queries, and what it evaluates. Raises ApiError."""

    def alert_rules(self) -> dict[str, AlertRule]:
        """The alerting rules that it evaluates, by name; of several tiers of one name the quickest."""
        rules: dict[str, AlertRule] = {}
        with self._understood():
            # vmalert writes null for an empty list
            groups = self._data("/api/v1/rules", [("type", "alert")])["groups"] or ()
            for rule in (rule for group in groups for rule in group["rules"] or ()):
                name, seconds = str(rule["name"]), float(rule.get("duration") or 0.0)
                if name not in rules or seconds < rules[name].for_seconds:
                    rules[name] = AlertRule(name, seconds)
        return rules

    def active_alerts(self, scope: Scope) -> tuple[ActiveAlert, ...]:
        """Alerts of these replicas that are pending or firing."""
        alerts = []
        with self._understood():
            for alert in self._data("/api/v1/alerts", ())["alerts"] or ():
                labels = labels_of(alert["labels"])
                if scope.identity.items() <= labels.items():
                    name, firing = labels.get("alertname", ""), alert["state"] == "firing"
                    # Go writes nanoseconds, of which Python reads six digits
                    since = datetime.fromisoformat(alert["activeAt"]).timestamp()
                    alerts.append(ActiveAlert(name, labels.get("severity", ""), firing, since))
        return tuple(alerts)


class Received(NamedTuple):
    """An alert as Alertmanager has it."""

    labels: Labels  # name -> value, those that Prometheus adds included
    receivers: tuple[str, ...]  # names of the receivers that its routes lead to
    silenced: bool  # whether a silence keeps it from them
    inhibited: bool  # whether another alert keeps it from them


class Alertmanager:
    """Its HTTP API, version 2. Raises ApiError."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    def received_alerts(self, scope: Scope) -> tuple[Received, ...]:
        """Alerts of these replicas that it has, silenced and inhibited ones among them. Relabelling may have dropped identity labels."""
        filters = [("filter", f"{name}={_quoted(scope.identity[name])}") for name in ("model_name", "role")]
        answer = self._api.get("/api/v2/alerts", filters)
        if not isinstance(answer, list):
            raise ApiError("what answers in Alertmanager's place is none: check --alertmanager.url")
        with understood("Alertmanager", "--alertmanager.url"):
            received = [
                Received(
                    labels_of(alert["labels"]), tuple(str(receiver["name"]) for receiver in alert["receivers"]),
                    bool(alert["status"]["silencedBy"]), bool(alert["status"]["inhibitedBy"]),
                )
                for alert in answer
            ]  # fmt: skip
        ours = dict(scope.labels)
        return tuple(alert for alert in received if {**ours, **alert.labels}.items() >= ours.items())


class Grafana:
    """Annotations, which dashboards show as a marked span. Raises ApiError."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    def begin_annotation(self, unix_seconds: float, text: str) -> int:
        """Marks a moment; the answer ends it."""
        document = {"time": round(1000 * unix_seconds), "tags": ["llm-serving", "drill"], "text": text}
        with understood("Grafana", "--grafana.url"):
            return int(self._api.send("POST", "/api/annotations", document)["id"])

    def end_annotation(self, annotation: int, unix_seconds: float, text: str) -> None:
        """Makes the moment a span with its result."""
        document = {"timeEnd": round(1000 * unix_seconds), "text": text}
        self._api.send("PATCH", f"/api/annotations/{annotation}", document)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", r"\\").replace('"', r"\"") + '"'


# --- What Prometheus and Alertmanager know of the drilled replicas: forecast, readings, baseline, counts, alerts that came.


# of a range query: what a median of the baseline rests on
_MOST_POINTS = 250

Sightings = tuple[Sighting, ...]


class Observer:
    """Asks the APIs about one model's replicas. Every method raises ApiError. Times by Prometheus' clock, which goes on by ours."""

    def __init__(
        self, scope: Scope, settings: Settings, prometheus: Prometheus, alertmanager: Alertmanager | None
    ) -> None:
        self._scope, self._settings = scope, settings
        self._prometheus, self._alertmanager = prometheus, alertmanager
        self._offset = prometheus.now() - time.monotonic()

    def now(self) -> float:
        """Unix seconds."""
        return time.monotonic() + self._offset

    def ask_forecast(self) -> Forecast:
        """What is known before anything is lost."""
        ask, matchers = self._prometheus, self._scope.matchers
        nodes = ask.instant(names.replicas_by_node(matchers))
        capacity = {labels.get("node", ""): value for labels, value in ask.instant(names.capacity_by_node(matchers))}
        largest = min(capacity, key=lambda node: (-capacity[node], node), default=None)
        replicas = {labels["node"]: round(value) for labels, value in nodes if labels.get("node")}
        reading = self.take_reading()
        rules, active = ask.alert_rules(), ask.active_alerts(self._scope)
        series = ask.instant(names.models_and_roles()) if reading.ready is None else ()
        others = tuple(sorted((labels.get("model_name", ""), labels.get("role", "")) for labels, _ in series))
        return Forecast(reading, replicas, largest or None, rules, active, others)

    def take_reading(self) -> Reading:
        """All records of now."""
        ask, matchers, now = self._prometheus, self._scope.matchers, self.now()
        samples = ask.instant(names.at_once(names.BY_MODEL, matchers))
        alive = ask.value(names.replicas_alive(matchers))
        try:
            return make_reading(now, samples, alive)
        except ValueError as error:
            what = f"Prometheus has more than one fleet of this model: {error}"
            raise ApiError(f"{what}; name one with --selector") from None

    def measure_baseline(self, end_unix_seconds: float) -> Baseline:
        """The time up to then."""
        ask, matchers, seconds = self._prometheus, self._scope.matchers, self._settings.baseline_seconds
        step = max(self._settings.interval_seconds, seconds / _MOST_POINTS)
        series = ask.range(names.at_once(names.BEFORE, matchers), end_unix_seconds - seconds, end_unix_seconds, step)
        return make_baseline(seconds, series, ask.value(names.rejected(self._scope, seconds), end_unix_seconds))

    def count_events(self, begin_unix_seconds: float, end_unix_seconds: float) -> Counts:
        """What the engines counted in between."""
        ask, seconds = self._prometheus, end_unix_seconds - begin_unix_seconds
        outcomes = ask.instant(names.ttft_events(self._scope, seconds), end_unix_seconds)
        events = {labels.get("outcome", ""): value for labels, value in outcomes}
        rejected = ask.value(names.rejected(self._scope, seconds), end_unix_seconds)
        return Counts(events.get("good"), events.get("bad"), rejected)

    def see_firing(self, sightings: Sightings, now: float) -> Sightings:
        """The sightings with what Prometheus says of these alerts now."""
        updated = {seen.name: seen for seen in sightings}
        for alert in self._prometheus.active_alerts(self._scope):
            if (seen := updated.get(alert.name)) is None:
                continue
            since, firing = seen.pending_unix_seconds, seen.firing_unix_seconds
            updated[alert.name] = replace(
                seen,
                severity=alert.severity,
                pending_unix_seconds=alert.active_since_unix_seconds if since is None else since,
                firing_unix_seconds=now if alert.firing and firing is None else firing,
            )
        return tuple(updated.values())

    def see_received(self, sightings: Sightings, now: float) -> Sightings:
        """The sightings with what Alertmanager has of these alerts now; unchanged where none is asked."""
        updated = {seen.name: seen for seen in sightings}
        for received in self._alertmanager.received_alerts(self._scope) if self._alertmanager else ():
            seen = updated.get(received.labels.get("alertname", ""))
            # what it still has of an earlier time is not this one
            if seen is None or seen.firing_unix_seconds is None:
                continue
            first = seen.received_unix_seconds is None
            updated[seen.name] = replace(
                seen,
                received_unix_seconds=now if first else seen.received_unix_seconds,
                receivers=tuple(dict.fromkeys((*seen.receivers, *received.receivers))),
                # one moment in which it was let through is enough
                silenced=received.silenced if first else seen.silenced and received.silenced,
                inhibited=received.inhibited if first else seen.inhibited and received.inhibited,
            )
        return tuple(updated.values())

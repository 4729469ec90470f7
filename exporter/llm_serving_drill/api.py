"""Prometheus, Alertmanager and Grafana as a drill asks them: their JSON -> values of `course`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from llm_serving_drill.course import ActiveAlert, AlertRule, Scope
from llm_serving_exporter.clients.json_api import ApiError, JsonApi
from llm_serving_exporter.clients.prometheus import Labels, labels_of, understood
from llm_serving_exporter.clients.prometheus import Prometheus as QueryApi


class Prometheus(QueryApi):
    """Its queries, and what it evaluates. Raises ApiError."""

    def alert_rules(self) -> dict[str, AlertRule]:
        """The alerting rules that it evaluates, by name; of several tiers of one name the quickest."""
        found: dict[str, AlertRule] = {}
        with self._understood():
            # vmalert writes null for an empty list
            groups = self._data("/api/v1/rules", [("type", "alert")])["groups"] or ()
            for rule in (rule for group in groups for rule in group["rules"] or ()):
                name, seconds = str(rule["name"]), float(rule.get("duration") or 0.0)
                if name not in found or seconds < found[name].for_seconds:
                    found[name] = AlertRule(name, seconds)
        return found

    def active_alerts(self, scope: Scope) -> tuple[ActiveAlert, ...]:
        """Alerts of these replicas that are pending or firing."""
        found = []
        with self._understood():
            for one in self._data("/api/v1/alerts", ())["alerts"] or ():
                labels = labels_of(one["labels"])
                if _belongs_to(scope, labels):
                    name, firing = labels.get("alertname", ""), one["state"] == "firing"
                    found.append(ActiveAlert(name, labels.get("severity", ""), firing, _unix(one["activeAt"])))
        return tuple(found)


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

    def close(self) -> None:
        """Closes its connections."""
        self._api.close()

    def received_alerts(self, scope: Scope) -> tuple[Received, ...]:
        """Alerts of these replicas that it has, silenced and inhibited ones among them. Relabelling may have dropped identity labels."""
        filters = [("filter", f"{name}={_quoted(scope.identity[name])}") for name in ("model_name", "role")]
        found = self._api.get("/api/v2/alerts", filters)
        if not isinstance(found, list):
            raise ApiError("what answers in Alertmanager's place is none: check --alertmanager.url")
        with understood("Alertmanager", "--alertmanager.url"):
            known = [_received(one) for one in found]
        return tuple(one for one in known if all(one.labels.get(key, value) == value for key, value in scope.labels))


class Grafana:
    """Annotations, which dashboards show as a marked span. Raises ApiError."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    def close(self) -> None:
        """Closes its connections."""
        self._api.close()

    def begin_annotation(self, unix_seconds: float, text: str) -> int:
        """Marks a moment; the answer ends it."""
        document = {"time": round(1000 * unix_seconds), "tags": ["llm-serving", "drill"], "text": text}
        with understood("Grafana", "--grafana.url"):
            return int(self._api.send("POST", "/api/annotations", document)["id"])

    def end_annotation(self, annotation: int, unix_seconds: float, text: str) -> None:
        """Makes the moment a span with its result."""
        document = {"timeEnd": round(1000 * unix_seconds), "text": text}
        self._api.send("PATCH", f"/api/annotations/{annotation}", document)


def _received(one: Any) -> Received:
    receivers = tuple(str(receiver["name"]) for receiver in one["receivers"])
    status = one["status"]
    return Received(labels_of(one["labels"]), receivers, bool(status["silencedBy"]), bool(status["inhibitedBy"]))


def _belongs_to(scope: Scope, labels: Labels) -> bool:
    return all(labels.get(name) == value for name, value in scope.identity.items())


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", r"\\").replace('"', r"\"") + '"'


def _unix(text: str) -> float:
    # Go writes nanoseconds, of which Python reads six digits
    return datetime.fromisoformat(text).timestamp()

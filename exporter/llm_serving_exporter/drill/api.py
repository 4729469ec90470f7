"""Prometheus, Alertmanager and Grafana as a drill asks them: their JSON -> the drill's nouns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from math import isfinite
from typing import Any, NamedTuple

from llm_serving_exporter.drill.http import ApiError, JsonApi, Query
from llm_serving_exporter.drill.nouns import ActiveAlert, AlertRule, Scope
from llm_serving_exporter.drill.sums import Series

Labels = Mapping[str, str]


@contextmanager
def _understood(who: str, flag: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ApiError(f"{who} answered with something else than its API promises ({error!r}); check {flag}") from None


_PROMETHEUS = "Prometheus", "--prometheus-url"


class Prometheus:
    """The HTTP API, version 1. Values that are no number (NaN, infinity) count as absent. Raises ApiError."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    def close(self) -> None:
        """Closes its connections."""
        self._api.close()

    def now(self) -> float:
        """Its clock, Unix seconds: all times of a drill are by this one."""
        # a vector: VictoriaMetrics knows no scalar
        now = self.value("vector(time())")
        if now is None:
            raise ApiError("what answers in Prometheus' place does not know the time: check --prometheus-url")
        return now

    def instant(self, query: str, at_unix_seconds: float | None = None) -> list[tuple[Labels, float]]:
        """The samples of an instant query, now or at a time."""
        form = [("query", query)]
        if at_unix_seconds is not None:
            form.append(("time", f"{at_unix_seconds:.3f}"))
        with _understood(*_PROMETHEUS):
            found = [(_labels(one["metric"]), float(one["value"][1])) for one in self._result(form, "/api/v1/query")]
        return [(labels, value) for labels, value in found if isfinite(value)]

    def value(self, query: str, at_unix_seconds: float | None = None) -> float | None:
        """The only sample of an instant query, None where it has none."""
        found = self.instant(query, at_unix_seconds)
        if len(found) > 1:
            raise ApiError(f"Prometheus has {len(found)} series where one was asked for: {query}")
        return found[0][1] if found else None

    def range(self, query: str, begin: float, end: float, step_seconds: float) -> list[Series]:
        """The points of a range query."""
        form = [("query", query), ("start", f"{begin:.3f}"), ("end", f"{end:.3f}"), ("step", f"{step_seconds:.3f}")]
        with _understood(*_PROMETHEUS):
            return [
                (
                    _labels(one["metric"]),
                    [(float(at), float(value)) for at, value in one["values"] if isfinite(float(value))],
                )
                for one in self._result(form, "/api/v1/query_range")
            ]

    def rules(self) -> dict[str, AlertRule]:
        """The alerting rules that it evaluates, by name; of several tiers of one name the quickest."""
        found: dict[str, AlertRule] = {}
        with _understood(*_PROMETHEUS):
            # vmalert writes null for an empty list
            groups = self._data("/api/v1/rules", [("type", "alert")])["groups"] or ()
            for rule in (rule for group in groups for rule in group["rules"] or ()):
                name, seconds = str(rule["name"]), float(rule.get("duration") or 0.0)
                if name not in found or seconds < found[name].for_seconds:
                    found[name] = AlertRule(name, seconds)
        return found

    def active(self, scope: Scope) -> tuple[ActiveAlert, ...]:
        """Alerts of these replicas that are pending or firing."""
        found = []
        with _understood(*_PROMETHEUS):
            for one in self._data("/api/v1/alerts", ())["alerts"] or ():
                labels = _labels(one["labels"])
                if _of(scope, labels):
                    name, firing = labels.get("alertname", ""), one["state"] == "firing"
                    found.append(ActiveAlert(name, labels.get("severity", ""), firing, _unix(one["activeAt"])))
        return tuple(found)

    def _result(self, form: Query, path: str) -> list[Any]:
        data = self._data(path, form, post=True)
        if data["resultType"] not in ("vector", "matrix"):
            raise ApiError(f"Prometheus answered with a {data['resultType']} where series were asked for")
        return list(data["result"])

    def _data(self, path: str, query: Query, *, post: bool = False) -> Any:
        document = self._api.post_form(path, query) if post else self._api.get(path, query)
        if not isinstance(document, dict) or document.get("status") != "success":
            raise ApiError("what answers in Prometheus' place is none: check --prometheus-url")
        return document["data"]


class Received(NamedTuple):
    """An alert as Alertmanager has it."""

    labels: Labels
    receivers: tuple[str, ...]
    silenced: bool
    inhibited: bool


class Alertmanager:
    """Its HTTP API, version 2. Raises ApiError."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    def close(self) -> None:
        """Closes its connections."""
        self._api.close()

    def received(self, scope: Scope) -> tuple[Received, ...]:
        """Alerts of these replicas that it has, silenced and inhibited ones among them. Relabelling may have dropped identity labels."""
        filters = [("filter", f"{name}={_quoted(scope.identity[name])}") for name in ("model_name", "role")]
        found = self._api.get("/api/v2/alerts", filters)
        if not isinstance(found, list):
            raise ApiError("what answers in Alertmanager's place is none: check --alertmanager-url")
        with _understood("Alertmanager", "--alertmanager-url"):
            known = [_received(one) for one in found]
        return tuple(one for one in known if all(one.labels.get(key, value) == value for key, value in scope.labels))


class Grafana:
    """Annotations, which dashboards show as a marked span. Raises ApiError."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    def close(self) -> None:
        """Closes its connections."""
        self._api.close()

    def begin(self, unix_seconds: float, text: str) -> int:
        """Marks a moment; the answer ends it."""
        document = {"time": round(1000 * unix_seconds), "tags": ["llm-serving", "drill"], "text": text}
        with _understood("Grafana", "--grafana-url"):
            return int(self._api.send("POST", "/api/annotations", document)["id"])

    def end(self, annotation: int, unix_seconds: float, text: str) -> None:
        """Makes the moment a span with its result."""
        document = {"timeEnd": round(1000 * unix_seconds), "text": text}
        self._api.send("PATCH", f"/api/annotations/{annotation}", document)


def _received(one: Any) -> Received:
    receivers = tuple(str(receiver["name"]) for receiver in one["receivers"])
    status = one["status"]
    return Received(_labels(one["labels"]), receivers, bool(status["silencedBy"]), bool(status["inhibitedBy"]))


def _labels(found: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items()}


def _of(scope: Scope, labels: Labels) -> bool:
    return all(labels.get(name) == value for name, value in scope.identity.items())


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", r"\\").replace('"', r"\"") + '"'


def _unix(text: str) -> float:
    # Go writes nanoseconds, of which Python reads six digits
    return datetime.fromisoformat(text).timestamp()

"""Prometheus' HTTP API, version 1: queries -> samples and series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

from llm_serving_exporter.clients.json_api import ApiError, JsonApi, Query

Labels = Mapping[str, str]
# Unix seconds, value
Points = Sequence[tuple[float, float]]
Series = tuple[Labels, Points]
Sample = tuple[Labels, float]


@contextmanager
def understood(who: str, flag: str) -> Iterator[None]:
    """Makes an answer of another shape an ApiError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ApiError(f"{who} answered with something else than its API promises ({error!r}); check {flag}") from None


class Prometheus:
    """Queries. Values that are no number (NaN, infinity) count as absent. Raises ApiError.

    `warnings`: what it said beside its answers, each once, such as that a store of several did not answer.
    """

    def __init__(self, api: JsonApi) -> None:
        self._api = api
        self.warnings: list[str] = []

    def close(self) -> None:
        """Closes its connections."""
        self._api.close()

    def now(self) -> float:
        """Its clock, Unix seconds."""
        # a vector: VictoriaMetrics knows no scalar
        now = self.value("vector(time())")
        if now is None:
            raise ApiError(f"what answers in Prometheus' place does not know the time: check {self._api.flag}")
        return now

    def instant(self, query: str, at_unix_seconds: float | None = None) -> list[Sample]:
        """The samples of an instant query, now or at a time."""
        form = [("query", query)]
        if at_unix_seconds is not None:
            form.append(("time", f"{at_unix_seconds:.3f}"))
        with self._understood():
            found = [(labels_of(one["metric"]), float(one["value"][1])) for one in self._result(form, "/api/v1/query")]
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
        with self._understood():
            return [
                (
                    labels_of(one["metric"]),
                    [(float(at), float(value)) for at, value in one["values"] if isfinite(float(value))],
                )
                for one in self._result(form, "/api/v1/query_range")
            ]

    def raw(self, selector: str, at_unix_seconds: float) -> list[Series]:
        """The samples themselves that a selector with a range, as in x[5m], finds before a time."""
        form = [("query", selector), ("time", f"{at_unix_seconds:.3f}")]
        with self._understood():
            return [
                (labels_of(one["metric"]), [(float(at), float(value)) for at, value in one["values"]])
                for one in self._result(form, "/api/v1/query")
            ]

    def runtime_info(self) -> dict[str, Any]:
        """What a Prometheus says of itself (`storageRetention` and more); others that answer its queries may not have it."""
        with self._understood():
            return dict(self._data("/api/v1/status/runtimeinfo", ()))

    def _understood(self) -> Any:
        return understood("Prometheus", self._api.flag)

    def _result(self, form: Query, path: str) -> list[Any]:
        data = self._data(path, form, post=True)
        if data["resultType"] not in ("vector", "matrix"):
            raise ApiError(f"Prometheus answered with a {data['resultType']} where series were asked for")
        return list(data["result"])

    def _data(self, path: str, query: Query, *, post: bool = False) -> Any:
        document = self._api.post_form(path, query) if post else self._api.get(path, query)
        if not isinstance(document, dict) or document.get("status") != "success":
            raise ApiError(f"what answers in Prometheus' place is none: check {self._api.flag}")
        warnings = document.get("warnings")
        for warning in warnings if isinstance(warnings, list) else ():
            if str(warning) not in self.warnings:
                self.warnings.append(str(warning))
        return document["data"]


def labels_of(found: Any) -> Labels:
    """Labels as texts. Raises AttributeError where they are no mapping."""
    return {str(name): str(value) for name, value in found.items()}

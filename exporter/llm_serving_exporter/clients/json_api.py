"""One HTTP API of JSON documents."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import responses
from typing import Any

from llm_serving_exporter.clients.http import HttpError, HttpSession, Limits
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import Masker, on_one_line

# a day of a model's records at one second is 5 MB
LARGEST_ANSWER_BYTES = 32 * 2**20
_LONGEST_WORDS = 300
# of an error page: a secret is masked before the text is cut, and it may be as long as its file
_SEARCHED_BYTES = 64 * 2**10
# Prometheus' --query.max-samples and --query.timeout, and its limit of 11,000 points a series
_TOO_LARGE = ("too many samples", "exceeded maximum resolution", "query timed out")

Query = Sequence[tuple[str, str]]


class ApiError(LLMServingExporterError):
    """An API that a command asks cannot be reached or does not answer as it should. The message is for users.

    `reason`: "unreachable", "late", "large" (it or its answer, so that asking for less may do), else "".
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class Access(Struct, frozen=True):
    """Where an API is, and how to get in."""

    what: str  # its name in messages: "Prometheus"
    url: str  # http or https, with the path below which it serves
    flag: str  # the flag to check where it does not answer
    bearer_token: str | None = None  # as it stood in its file; None = none is sent
    basic: tuple[str, str] | None = None  # user name and password; None = none are sent
    ca_file: str | None = None  # authorities to trust instead of the system's


class JsonApi:
    """GET and POST of JSON. Each exchange ends within `timeout_seconds`, is sent once, follows no redirect and heeds no proxy or netrc.

    Raises ApiError with what was asked, what came, and the flag to check. What a secret says stands in none.
    """

    def __init__(self, access: Access, timeout_seconds: float = 10.0) -> None:
        self._access = access
        secrets = [access.bearer_token] if access.bearer_token is not None else []
        headers = {"Accept": "application/json"}
        if access.bearer_token is not None:
            headers["Authorization"] = f"Bearer {access.bearer_token}"
        if access.basic is not None:
            pair = base64.b64encode(":".join(access.basic).encode()).decode("ascii")
            headers["Authorization"] = f"Basic {pair}"
            secrets += [access.basic[1], pair]
        self._masker = Masker(secrets)
        self._session = HttpSession(
            Limits(timeout_seconds, timeout_seconds, LARGEST_ANSWER_BYTES, total_seconds=timeout_seconds),
            headers=headers,
            ca_file=access.ca_file,
            trust_fix="--ca-file names other authorities",
        )

    @property
    def flag(self) -> str:
        """What to check where it is the wrong server."""
        return self._access.flag

    def close(self) -> None:
        """Closes its connections."""
        self._session.close()

    def get(self, path: str, query: Query = ()) -> Any:
        """The JSON document at a path."""
        return self._exchange("GET", path, query, None)

    def post_form(self, path: str, form: Query) -> Any:
        """The answer to a form: for queries that are too long for an address."""
        return self._exchange("POST", path, (), form)

    def send(self, method: str, path: str, document: Mapping[str, Any]) -> Any:
        """The answer to a JSON document."""
        return self._exchange(method, path, (), document)

    def _exchange(self, method: str, path: str, query: Query, body: Query | Mapping[str, Any] | None) -> Any:
        form = list(body) if body is not None and not isinstance(body, Mapping) else None
        document = body if isinstance(body, Mapping) else None
        try:
            answer = self._session.ask(
                method, f"{self._access.url.rstrip('/')}{path}", params=list(query), data=form, json=document
            )
        except HttpError as error:
            raise self._error(str(error), error.reason) from None
        content = self._masker.mask_body(answer.content)
        found = _document(content)
        if answer.status != 200:
            words = self._words(found, answer.content)
            raise self._error(
                f"answered {answer.status} {responses.get(answer.status, '')}".rstrip()
                + (f": {words}" if words else ""),
                "large" if any(said in words for said in _TOO_LARGE) else "",
            )
        if found is None:
            raise self._error("did not answer with JSON")
        return found

    def _words(self, document: Any, content: bytes) -> str:
        """What an API says about its refusal (Prometheus `error`, Grafana `message`, else its text), without a secret that it repeats."""
        if isinstance(document, dict):
            said = str(document.get("error") or document.get("message") or "")
        else:
            said = content[:_SEARCHED_BYTES].decode("utf-8", errors="replace")
        return on_one_line(self._masker.mask_text(said), _LONGEST_WORDS)

    def _error(self, what: str, reason: str = "") -> ApiError:
        return ApiError(f"{self._access.what} at {self._access.url} {what}; check {self._access.flag}", reason)


def _document(content: bytes) -> Any:
    """None where it is no JSON: no API that is asked here answers null."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


# --- Prometheus' HTTP API, version 1: queries -> samples and series.


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


# what is larger was never measured, and what is nearer to 0 is left over from rounding: neither may overflow a sum or a quotient
_LARGEST, _SMALLEST = 1e30, 1e-30


def _round_off(value: float) -> float:
    return value if abs(value) >= _SMALLEST else 0.0


class Prometheus:
    """Queries. Values that are no number (NaN, infinity, beyond 1e30) count as absent, those within 1e-30 of 0 as 0. Raises ApiError.

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
        return [(labels, _round_off(value)) for labels, value in found if abs(value) <= _LARGEST]

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
                    [
                        (float(at), _round_off(float(value)))
                        for at, value in one["values"]
                        if abs(float(value)) <= _LARGEST
                    ],
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

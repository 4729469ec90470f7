"""The APIs over real HTTP: what is asked, what an odd server is answered with, and that nothing lasts or grows without end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from llm_serving_drill.course import ActiveAlert, AlertRule, Scope
from llm_serving_drill.observer import Alertmanager, Grafana, Prometheus
from llm_serving_exporter.clients.json_api import Access, ApiError, JsonApi
from tests.support.servers.faultbehaviours import (
    drip,
    endless,
    garbage,
    gzip_bomb,
    hang_up,
    page,
    redirect,
    silent,
    status,
)
from tests.support.servers.faultserver import Behaviour, FaultServer
from tests.support.servers.http_server import QuietHandler, serve

SCOPE = Scope("m", "unified", (("cluster", "prod"),))


def api(url: str, timeout_seconds: float = 30.0, **more: Any) -> JsonApi:
    return JsonApi(Access("Prometheus", url, "--prometheus.url", **more), timeout_seconds)


@contextmanager
def answering(answers: dict[str, object]) -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """The URL of what answers any method with JSON by path, and method, path and body of each request."""
    seen: list[tuple[str, str, Any]] = []

    class Handler(QuietHandler):
        def _respond(self) -> None:
            seen.append((self.command, self.path, self.read_body().decode()))
            self.answer(200, json.dumps(answers[self.path.partition("?")[0]]).encode())

        do_GET = do_POST = do_PATCH = _respond  # noqa: N815  # names of http.server

    with serve(Handler) as url:
        yield url, seen


@contextmanager
def prom(path: str, data: object) -> Iterator[Prometheus]:
    """A Prometheus that has one answer."""
    with answering({path: {"status": "success", "data": data}}) as (url, _), closing(Prometheus(api(url))) as asked:
        yield asked


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (silent(), "did not answer within 500ms"),
        (hang_up(), "cannot be reached"),
        (garbage(), "cannot be reached"),
        (drip(b"[" + b" " * 200, interval_seconds=0.05), "did not answer within 500ms"),
        (endless(b" " * 1000), "answered with more than 32 MiB"),
        (gzip_bomb(), "answered with more than 32 MiB"),
        (page(b"<html>", content_type="text/html"), "did not answer with JSON"),
        (page(b"null", content_type="application/json"), "did not answer with JSON"),
        (redirect("http://127.0.0.1:9/"), "answered 302 Found"),
        (status(401, body=b'{"status":"error","error":"who are you"}'), "answered 401 Unauthorized: who are you"),
        (status(502, body=b"<h1>Bad\n gateway</h1>"), "answered 502 Bad Gateway: <h1>Bad gateway</h1>"),
    ],
)
def test_whatever_a_server_does_is_a_sentence_in_time(behaviour: Behaviour, message: str) -> None:
    timeout_seconds = 0.5 if "within" in message else 30.0
    with FaultServer(behaviour) as server:
        asked = time.monotonic()
        with pytest.raises(ApiError) as failed:
            api(server.url, timeout_seconds).get("/api/v1/query")
        assert time.monotonic() - asked < timeout_seconds + 9
    assert message in str(failed.value)
    assert str(failed.value).startswith(f"Prometheus at {server.url} ")
    assert str(failed.value).endswith("; check --prometheus.url")


@pytest.mark.parametrize("name", ["url", "netrc"])
def test_environment_does_not_change_whom_it_asks(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    if name == "url":
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    else:
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with FaultServer(page(b"[1]", content_type="application/json")) as server:
        assert api(server.url, bearer_token="t0ken").get("/") == [1]
        assert server.requests[-1].headers["authorization"] == "Bearer t0ken"


def test_basic_auth_is_sent_as_utf_8() -> None:
    with FaultServer(page(b"[1]", content_type="application/json")) as server:
        api(server.url, basic=("ops", "s3cret")).get("/")
        # base64 of ops:s3cret
        assert server.requests[-1].headers["authorization"] == "Basic b3BzOnMzY3JldA=="


def test_labels_and_warnings_do_not_repeat_a_token() -> None:
    token = "pl4nted/token"
    said = {
        "status": "success",
        "warnings": [f"no store for {token}"],
        "data": {"resultType": "vector", "result": [{"metric": {"node": f"n-{token}"}, "value": [0, "1"]}]},
    }
    with FaultServer(page(json.dumps(said).encode(), content_type="application/json")) as server:
        prometheus = Prometheus(api(server.url, bearer_token=token))
        assert prometheus.instant("up") == [({"node": "n-***"}, 1.0)]
        assert prometheus.warnings == ["no store for ***"]
        assert server.requests[-1].headers["authorization"] == f"Bearer {token}"


def test_a_server_that_repeats_what_it_was_sent_does_not_give_it_away() -> None:
    coloured = status(400, body=b"bad \x1b[31m request: Authorization: Bearer t0ken")
    with FaultServer(coloured) as server, pytest.raises(ApiError) as failed:
        api(server.url, bearer_token="t0ken").get("/")
    assert "answered 400 Bad Request: bad [31m request: Authorization: Bearer ***; check" in str(failed.value)
    # base64 of ops:s3cret
    message = r": Basic \*\*\* is ops and \*\*\*; check"
    repeated = status(400, body=b"Basic b3BzOnMzY3JldA== is ops and s3cret")
    with FaultServer(repeated) as server, pytest.raises(ApiError, match=message):
        api(server.url, basic=("ops", "s3cret")).get("/")


def test_numbers_that_are_none_are_absent() -> None:
    samples = [{"metric": {"a": text}, "value": [1.5, text]} for text in ("NaN", "+Inf", "-Inf", "1.7e308", "2.5e3")]
    with prom("/api/v1/query", {"resultType": "vector", "result": samples}) as asked:
        assert asked.instant("x") == [({"a": "2.5e3"}, 2500.0)]
    # what is that near to 0 is left over from rounding, and a quotient by it would overflow
    points = {"metric": {}, "values": [[1, "1"], [2, "NaN"], [2.5, "-1e300"], [3, "3"], [4, "5e-324"]]}
    with prom("/api/v1/query_range", {"resultType": "matrix", "result": [points]}) as asked:
        assert asked.range("x", 0, 4, 1) == [({}, [(1.0, 1.0), (3.0, 3.0), (4.0, 0.0)])]


def test_several_series_where_one_is_asked_for_are_refused() -> None:
    two = [{"metric": {"a": a}, "value": [1, "1"]} for a in "ab"]
    message = "Prometheus has 2 series where one was asked for: x"
    with (
        prom("/api/v1/query", {"resultType": "vector", "result": two}) as asked,
        pytest.raises(ApiError, match=message),
    ):
        asked.value("x")


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"resultType": "vector"},
        {"resultType": "vector", "result": [{}]},
        {"resultType": "scalar", "result": [1, "1"]},
    ],
)
def test_an_answer_of_another_shape_is_a_sentence(data: object) -> None:
    with prom("/api/v1/query", data) as asked, pytest.raises(ApiError):
        asked.instant("x")


def test_of_an_alert_with_two_tiers_the_quicker_counts() -> None:
    rules = [{"name": "A", "duration": seconds, "type": "alerting"} for seconds in (300, 60, 900)]
    with prom("/api/v1/rules", {"groups": [{"rules": rules}, {"rules": [{"name": "B", "duration": 0}]}]}) as asked:
        assert asked.alert_rules() == {"A": AlertRule("A", 60.0), "B": AlertRule("B", 0.0)}


def test_only_alerts_of_these_replicas_are_theirs() -> None:
    def alert(state: str, **labels: str) -> dict[str, Any]:
        return {
            "labels": {"alertname": "A", "severity": "warning", **labels},
            "state": state,
            "activeAt": "2026-11-22T02:18:05.123456789Z",
        }

    ours = {"model_name": "m", "role": "unified", "cluster": "prod"}
    alerts = [alert("firing", **ours), alert("firing", **{**ours, "cluster": "dev"}), alert("pending", model_name="m")]
    with prom("/api/v1/alerts", {"alerts": alerts}) as asked:
        # 2026-11-22T02:18:05Z is 1795313885 (date -u -d … +%s)
        assert asked.active_alerts(SCOPE) == (ActiveAlert("A", "warning", True, pytest.approx(1795313885.123456)),)


def test_grafana_gets_one_annotation_that_becomes_a_span() -> None:
    answers = {
        "/api/annotations": {"id": 7, "message": "Annotation added"},
        "/api/annotations/7": {"message": "patched"},
    }
    with answering(answers) as (url, seen), closing(api(url)) as client:
        grafana = Grafana(client)
        annotation = grafana.begin_annotation(1000.5, "a drill")
        grafana.end_annotation(annotation, 1600.25, "passed")
    assert [(method, path, json.loads(body)) for method, path, body in seen] == [
        ("POST", "/api/annotations", {"time": 1_000_500, "tags": ["llm-serving", "drill"], "text": "a drill"}),
        ("PATCH", "/api/annotations/7", {"timeEnd": 1_600_250, "text": "passed"}),
    ]


def test_alertmanager_says_for_whom_and_what_keeps_it_quiet() -> None:
    def alert(name: str, silenced: list[str], inhibited: list[str], **labels: str) -> dict[str, Any]:
        return {
            "labels": {"alertname": name, "model_name": "m", "role": "unified", **labels},
            "receivers": [{"name": "pager"}, {"name": "tickets"}],
            "status": {"state": "active", "silencedBy": silenced, "inhibitedBy": inhibited},
        }

    # external labels may have been dropped on the way, another cluster's are another's
    alerts = [alert("A", [], [], cluster="prod"), alert("B", ["x"], ["y"]), alert("C", [], [], cluster="dev")]
    with answering({"/api/v2/alerts": alerts}) as (url, _):
        found = Alertmanager(api(url)).received_alerts(SCOPE)
    assert [(one.labels["alertname"], one.receivers, one.silenced, one.inhibited) for one in found] == [
        ("A", ("pager", "tickets"), False, False),
        ("B", ("pager", "tickets"), True, True),
    ]

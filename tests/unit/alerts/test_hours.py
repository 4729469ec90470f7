"""Sums of hours have as many hours as they say: on Prometheus 2 and 3 and on VictoriaMetrics, at full hours and between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llm_serving_alerts.promql import DAY, HOUR, MINUTE, WEEK, Dialect
from llm_serving_alerts.records.cost import apply_over_hours
from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import default_settings
from tests.support.quick import keep_quick
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.server_process import find_program
from tests.support.servers.tsdb import make_blocks
from tests.support.servers.victoriametrics import VictoriaMetrics

NOON = 1_760_011_200.0  # 2025-10-09, twelve o'clock
SAMPLES_SECONDS = 60.0
HISTORY_SECONDS = WEEK + 2 * HOUR
COST = "model:llm_serving_cost_usd:increase1h"
EVENTS = "model:llm_serving_slo_events:increase5m"
# at a full hour, on a sample, between samples, just after and just before a full hour
MOMENTS = (NOON, NOON + 1.0, NOON + 1800.0, NOON + 2001.0, NOON + HOUR - 0.1, NOON + HOUR)


def usd_until(unix_seconds: float) -> float:
    """What had been spent: hours of quite different cost, so that one too many or too few cannot hide."""
    whole, rest = divmod(unix_seconds, HOUR)
    return sum(usd_of(hour) for hour in range(int(NOON // HOUR) - 400, int(whole))) + usd_of(int(whole)) * rest / HOUR


def usd_of(hour: int) -> float:
    return 1.0 + hour * 7919 % 97


def history() -> dict[str, Callable[[float], float]]:
    return {
        f'{COST}{{model_name="m",role="unified",phase="idle"}}': lambda now: usd_until(now) - usd_until(now - HOUR),
        f'{EVENTS}{{model_name="m",role="unified",slo="ttft"}}': lambda now: (
            usd_until(now) - usd_until(now - 5 * MINUTE)
        ),
    }


def lines() -> Iterator[str]:
    for series, value in history().items():
        for number in range(round((HISTORY_SECONDS + HOUR) / SAMPLES_SECONDS) + 1):
            now = NOON - HISTORY_SECONDS + number * SAMPLES_SECONDS
            yield f"{series} {value(now)!r} {now:.3f}"


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[Callable[[str, float], float]]:
    with VictoriaMetrics(folder) as server:
        with server.importing() as out:
            for line in lines():
                series, value, stamp = line.rsplit(" ", 2)
                out.write(f"{series} {value} {round(float(stamp) * 1000)}\n")
        yield server.value


@contextmanager
def prometheus(folder: Path, program: str) -> Iterator[Callable[[str, float], float]]:
    if find_program(program) is None:
        pytest.skip(f"no {program} on PATH; `make test-prometheus3` builds it where Go is installed")
    folder.mkdir()
    text = folder / "history.txt"
    text.write_text("\n".join([*lines(), "# EOF\n"]))
    make_blocks(text, folder / "data")
    with PrometheusServer(folder, "scrape_configs: []\n", retention="100y", name=program) as server:
        yield lambda query, now: float(
            server.get("/api/v1/query", query=query, time=f"{now:.3f}").json()["data"]["result"][0]["value"][1]
        )


@pytest.mark.process
@pytest.mark.parametrize(
    "name", keep_quick(["prometheus", "prometheus3", "victoria-metrics"], lambda name: name == "prometheus")
)
def test_sums_of_hours_are_what_was_spent_in_them(tmp_path: Path, name: str) -> None:
    dialect = Dialect()
    asked = {
        record: recorded(record)
        for record in ("model:llm_serving_cost_usd:increase1d", "model:llm_serving_slo_events:increase6h")
    }
    server = victoria_metrics(tmp_path / name) if name == "victoria-metrics" else prometheus(tmp_path / name, name)
    with server as value:
        for now in MOMENTS:
            hour, step = now // HOUR * HOUR, now // (5 * MINUTE) * 5 * MINUTE
            day = usd_until(hour) - usd_until(hour - DAY)
            assert value(asked["model:llm_serving_cost_usd:increase1d"], now) == pytest.approx(day, rel=1e-6), now
            events = usd_until(step) - usd_until(step - 6 * HOUR)
            assert value(asked["model:llm_serving_slo_events:increase6h"], now) == pytest.approx(events, rel=1e-6), now
            assert value(apply_over_hours(dialect, "count_over_time", COST, DAY), now) == 24, now
            assert value(apply_over_hours(dialect, "count_over_time", COST, WEEK), now) == 168, now
            mean = (usd_until(hour) - usd_until(hour - WEEK)) / 168
            assert value(apply_over_hours(dialect, "avg_over_time", COST, WEEK), now) == pytest.approx(
                mean, rel=1e-6
            ), now
            if name != "prometheus":
                # where ranges are left-open, as they are called
                assert (
                    value(apply_over_hours(Dialect(ranges_are_left_open=True), "count_over_time", COST, DAY), now) == 24
                ), now
            # what it was: right between hours everywhere, wrong on the hour where a range has both of its ends
            plain = value(f"count_over_time({COST}[1d:1h])", now)
            assert plain == (25 if name == "prometheus" and now % HOUR == 0 else 24), now


def recorded(name: str) -> str:
    """The expression of a recording rule."""
    (rule,) = (
        rule for rule in every_rule(rule_groups(default_settings())) if isinstance(rule, Record) and rule.record == name
    )
    return rule.expr

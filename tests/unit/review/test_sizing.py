"""Models that fewer or cheaper replicas would carry: the review's line has the figures of `ceiling --from-prometheus`, or there is none."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from llm_serving_exporter.clients.json_api import Access, JsonApi, Prometheus, Series
from llm_serving_exporter.commands.what_if.answer import Asked, answer, watch
from llm_serving_exporter.model.record import replace
from llm_serving_review.command import make
from llm_serving_review.evidence.context import ModelLoad, read_loads
from llm_serving_review.evidence.fetch import Reader
from llm_serving_review.evidence.names import Asking
from llm_serving_review.evidence.usage import Book, Evidence, Fleet, Line, Usage
from llm_serving_review.figures.actions import Kind
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.pages.csv_files import render_figures_csv
from llm_serving_review.pages.page import render_page
from llm_serving_review.pages.summary import render_summary
from llm_serving_review.settings.settings import Settings
from tests.support.builders.ceilings import document
from tests.support.builders.costevidence import evidence, flat, gauge, owner, usage
from tests.support.builders.loads import Served, make_load
from tests.support.builders.watchedweek import MODEL, REPLICAS, USD, list_records
from tests.support.rows import check_rows
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.tsdb import make_blocks

SERVED = Served(MODEL)
# requests/s of six replicas, of which a single one carries some thirty
RATES = tuple(20.0 + 10 * (hour % 24 in range(8, 20)) for hour in range(168))
PAID = 6 * 2.0 * 168


def week_of(served: Served = SERVED, rates: Sequence[float] = RATES, **more: object) -> Evidence:
    """Six replicas at $2 an hour, paid by the hour."""
    spent = usage(owner(model=served.model), {"decode": PAID / 2, "idle": PAID / 2}, 1e9, 2e8, rate="hourly")
    book = Book(
        prices=(gauge(2.0, target="a:8000", gpu_name=served.gpu, rate="hourly"),),
        rates={"hourly": "on_demand"},
    )
    known = {"book": book, "loads": (ModelLoad(((), served.model, "unified"), make_load(served, rates)),), **more}
    return evidence(spent, spent, **known)


def review_of(found: Evidence, settings: Settings | None = None) -> Review:
    return build_review(found, settings or Settings())


def test_the_line_has_the_figures_of_the_ceiling_command() -> None:
    found = week_of()
    (line,) = review_of(found).sizings
    (load,) = found.loads
    asked = Asked(MODEL)
    question = answer(watch(load.load, asked), asked).question
    assert question.with_reserve is not None
    assert (line.needed, line.found.question.replicas) == (question.needed, question.with_reserve)
    same = answer(watch(load.load, asked), replace(asked, replicas=question.with_reserve))
    assert line.found.question == same.question
    assert line.action.usd_per_week == pytest.approx((6 - question.with_reserve) * 2.0 * 168)
    assert line.action.kind == Kind.CASH
    assert line.action.what == f"Run {MODEL} on {question.with_reserve} replicas instead of 6"
    assert (
        "the peak of 30 requests/s, 800 + 240 tokens each, with 99 % of first tokens within 2 s; 1 more stands in for a lost node"
        in (line.action.why)
    )


def test_page_summary_and_table_have_it() -> None:
    made = review_of(week_of())
    (line,) = made.sizings
    page, summary = render_page(made), render_summary(made)
    assert "Fewer or cheaper replicas" in page
    assert f"<b>{line.action.what}</b>" in page
    assert f"replicas instead of 6 – saves ${line.action.usd_per_week:,.0f} a week: " in summary
    rows = [row for row in csv.DictReader(io.StringIO(render_figures_csv(made))) if row["section"] == "sizing"]
    values = {row["item"]: float(row["value"]) for row in rows}
    assert (values["replicas"], values["replicas_with_reserve"]) == (6, line.found.question.replicas)
    assert values["worth"] == pytest.approx(line.action.usd_per_week)
    assert {row["model_name"] for row in rows} == {MODEL}


def test_committed_gpus_free_capacity_and_save_nothing() -> None:
    made = week_of(book=Book(rates={"hourly": "reserved"}))
    (line,) = review_of(made).sizings
    assert line.action.kind == Kind.CAPACITY
    assert line.action.worth.startswith("frees capacity worth $")


def test_another_kind_of_gpu_counts_where_it_is_cheaper_and_paid_by_the_hour() -> None:
    def sized(usd: float, kind: str = "on_demand") -> str:
        prices = [gauge(2.0, gpu_name=SERVED.gpu, rate="hourly"), gauge(usd, gpu_name="L40S", rate="hourly")]
        found = week_of(book=Book(prices=tuple(prices), rates={"hourly": kind}))
        (line,) = review_of(found).sizings
        return line.action.what

    assert "of 1 x L40S" in sized(0.1)
    assert "L40S" not in sized(2.0)
    assert "L40S" not in sized(0.1, "reserved")


def with_slo(good: float, bad: float) -> Callable[[Evidence], Evidence]:
    lines = tuple(flat(owner(model=MODEL), ("ttft", said), value) for said, value in (("good", good), ("bad", bad)))
    return lambda found: replace(found, usage=replace(found.usage, slo=lines))


def with_load(**more: object) -> Callable[[Evidence], Evidence]:
    def changed(found: Evidence) -> Evidence:
        (one,) = found.loads
        return replace(found, loads=(ModelLoad(one.key, replace(one.load, **more)),))

    return changed


def scaled(factor: float) -> Callable[[Evidence], Evidence]:
    def changed(found: Evidence) -> Evidence:
        cost: list[Line] = [flat(one.owner, one.of, factor * one.total) for one in found.usage.cost]
        return replace(
            found, usage=replace(found.usage, cost=(*found.usage.cost, *(replace_owner(one) for one in cost)))
        )

    return changed


def replace_owner(line: Line) -> Line:
    return Line(owner(target="b:8000", model="other"), line.of, line.hours)


NOTHING: Mapping[str, tuple[Callable[[Evidence], Evidence], int]] = {
    "as it is": (lambda found: found, 1),
    "attained": (with_slo(996.0, 4.0), 1),
    "missed with all six": (with_slo(980.0, 20.0), 0),
    "no records": (lambda found: replace(found, loads=()), 0),
    "no replica too many": (with_load(replicas=2.0), 0),
    "a model that nobody knows": (with_load(model_name="x", gpu_name="a GPU that nobody has"), 0),
    "without a price": (with_load(usd_per_gpu_hour=None), 0),
    "no number holds it": (with_load(objectives={"ttft": 1e-4}), 0),
    "too little of the spend": (scaled(500.0), 0),
}


@check_rows("name", list(NOTHING))
def test_nothing_stands_there_where_nothing_is_gained(name: str) -> None:
    change, count = NOTHING[name]
    made = review_of(change(week_of()))
    assert len(made.sizings) == count
    assert ("Fewer or cheaper replicas" in render_page(made)) == bool(count)


def test_risks_are_said() -> None:
    labels = {"model_name": MODEL, "role": "unified"}
    fleet = Fleet(required=(gauge((6.0,) * 30 + (2.0,) * 138, **labels, reserve="nodes"),))
    (line,) = review_of(week_of(fleet=fleet)).sizings
    assert "required up to 6 in 30 hours" in " ".join(line.risks)
    (bare,) = review_of(with_load(objectives={}, largest_node=0)(week_of())).sizings
    assert "No objective of latency is set" in " ".join(bare.risks)
    assert "No reserve is said" in " ".join(bare.risks)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    folder: Path = tmp_path_factory.mktemp("sizing")
    source = folder / "records.om"
    source.write_text("".join(list_records(time.time() - 60, 50, load=0.3)))
    make_blocks(source, folder / "data")
    with PrometheusServer(folder, "") as server:
        yield server


@pytest.mark.process
def test_a_real_prometheus_is_asked_and_says_what_the_ceiling_command_says(prometheus: PrometheusServer) -> None:
    asked = Prometheus(JsonApi(Access("Prometheus", prometheus.url, "--prometheus.url"), 60.0))
    try:
        made = make(asked, Settings(), 24, lambda text: None)
    finally:
        asked.close()
    assert made.missing_parts == ()
    (line,) = made.sizings
    replicas = line.found.question.replicas
    assert replicas < REPLICAS
    words = ("--from-prometheus", prometheus.url, "--model", MODEL, "--over", "24h")
    told = document(*words)["question"]
    assert told["replicas_with_reserve"] == replicas
    same = document(*words, "--replicas", f"{replicas:g}")["question"]
    assert line.found.question.usd_per_million_tokens == pytest.approx(same["usd_per_million_tokens"], rel=0.02)
    assert line.action.usd_per_week == pytest.approx((REPLICAS - replicas) * USD * 24, rel=0.02)
    assert line.action.each == "in 24 hours"


class Remembers(Prometheus):
    """Has nothing, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(JsonApi(Access("Prometheus", "http://127.0.0.1:9", "--prometheus.url"), 1.0))
        self.queries: list[str] = []

    def range(self, query: str, begin: float, end: float, step_seconds: float) -> list[Series]:
        self.queries.append(query)
        return []


def test_only_models_that_cost_and_have_records_are_asked_about_ten_at_most() -> None:
    week = week_of().week
    models = [f"m-{number}" for number in range(30)]
    cost = tuple(flat(owner(model=name), ("decode", "", ""), 100.0 + number) for number, name in enumerate(models))
    present = tuple(gauge(2.0, model_name=name, role="unified") for name in models[:-1])
    asked = Remembers()
    found = read_loads(Reader(asked, Asking(), lambda text: None), week, Usage(cost=cost), Fleet(present=present))
    assert found == ()
    # the dearest has no record
    assert [re.findall('model_name="(.*?)"', query) for query in asked.queries] == [
        [name] for name in models[-2:-12:-1]
    ]


def test_a_model_is_asked_about_in_its_own_fleet() -> None:
    asked = Remembers()
    cost = (flat(owner(model="m", cluster="a", team="x"), ("decode", "", ""), 100.0),)
    present = (gauge(2.0, cluster="a", model_name="m", role="unified"),)
    reader = Reader(asked, Asking(("cluster",), ("team",)), lambda text: None)
    read_loads(reader, week_of().week, Usage(cost=cost), Fleet(present=present))
    assert [re.findall("{(.*?)}", query) for query in asked.queries] == [['cluster="a",model_name="m",role="unified"']]


def test_a_fleet_that_is_away_at_night_saves_by_day_alone() -> None:
    (always,) = review_of(week_of()).sizings
    (by_day,) = review_of(with_load(present_share=0.5)(week_of())).sizings
    assert by_day.action.usd_per_week == pytest.approx(always.action.usd_per_week / 2)

"""One real Prometheus with a fortnight in it, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from llm_serving_review.figures.review import Review
from llm_serving_review.settings.settings import ApiPrice, MonthlyCosts, Settings
from tests.support.builders.costfortnight import Fortnight, blocks
from tests.support.builders.movedfortnight import MovedFortnight
from tests.support.builders.reviews import MONDAY, review_week
from tests.support.servers.prometheus_server import PrometheusServer

SETTINGS = Settings(
    by_labels=("team",),
    api_price=ApiPrice("Example API", 0.6, 0.15, 2.4),
    purchase_usd=200_000.0,
    monthly_costs=MonthlyCosts(storage=100, network=50, monitoring=25, engineering=325),
    objectives={"ttft": 0.99},
)


@pytest.fixture(scope="session")
def fortnight() -> Fortnight:
    return Fortnight(MONDAY)


@pytest.fixture(scope="session")
def prometheus(fortnight: Fortnight, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    folder = tmp_path_factory.mktemp("prometheus")
    blocks(fortnight.text, folder / "data")
    with PrometheusServer(folder, "global: {}\n") as server:
        yield server


@pytest.fixture(scope="session")
def made(prometheus: PrometheusServer) -> Review:
    """The review of the fortnight's second week."""
    return review_week(prometheus, SETTINGS)


@pytest.fixture(scope="session")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Review:
    """The review of a week in which targets come, go, move and change their price."""
    folder = tmp_path_factory.mktemp("moved")
    blocks(MovedFortnight(MONDAY).text, folder / "data")
    with PrometheusServer(folder, "global: {}\n") as server:
        return review_week(server, Settings())

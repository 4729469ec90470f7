"""What several modules ask of one simulation."""

from collections.abc import Iterator

import pytest

from tests.e2e.week import PLAN, Week
from tests.simweek.build import build
from tests.support.servers.prometheus_server import PrometheusServer


@pytest.fixture(scope="session")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    """All scenarios, their rules evaluated, in a real Prometheus. A minute of computing: tests/conftest.py keeps its tests together."""
    folder = tmp_path_factory.mktemp("week")
    build(PLAN, folder)
    with PrometheusServer(folder, "global: {}\n", retention="100y") as server:
        yield Week(server)

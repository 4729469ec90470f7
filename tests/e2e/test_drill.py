"""A drill whose alert goes from a real Prometheus, or vmalert, to a real Alertmanager: for whom it is there, and what a silence keeps from
them."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from llm_serving_drill.command import run
from tests.support.servers.alertmanager import Alertmanager
from tests.support.servers.drillbed import INTERVAL, Bed, Fleet, scrapes
from tests.support.servers.server_process import free_port
from tests.support.servers.victoriametrics import VictoriaMetrics, VmAlert
from tests.unit.drill.test_drill import words

pytestmark = pytest.mark.e2e

ROUTES = """
route:
  receiver: nobody
  group_wait: 1s
  routes: [{receiver: tickets, matchers: ['severity="warning"']}]
receivers: [{name: nobody}, {name: tickets}]
"""


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    config = tmp_path_factory.mktemp("alertmanager") / "alertmanager.yml"
    config.write_text(ROUTES)
    with Alertmanager(config) as running:
        yield running


class VictoriaBed(Bed):
    """VictoriaMetrics keeps the series, vmalert evaluates the rules; the API that is asked is one that passes what it does not know on to
    vmalert."""

    def serve(self, opened: ExitStack, folder: Path, page: str, rules: Path, alertmanager: str | None) -> str:
        every = {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL}
        scrape = yaml.safe_dump({"global": every, "scrape_configs": scrapes(page)})
        proxy = free_port()
        asked = opened.enter_context(
            VictoriaMetrics(folder / "database", f"-vmalert.proxyURL=http://127.0.0.1:{proxy}", scrape=scrape)
        )
        assert alertmanager is not None
        ruler = VmAlert(
            folder / "ruler", asked.url, alertmanager, [rules], f"-evaluationInterval={INTERVAL}", port=proxy
        )
        opened.enter_context(ruler)
        return asked.url


@pytest.mark.parametrize("kind", [Bed, VictoriaBed])
def test_it_is_known_for_whom_the_alert_was_and_that_a_silence_kept_it_from_them(
    kind: type[Bed], alertmanager: Alertmanager, tmp_path: Path
) -> None:
    alertmanager.silence(("model_name", "silenced"))
    asked = ["--alertmanager.url", alertmanager.url, "--hold", "page"]
    with kind(tmp_path, Fleet("told"), Fleet("silenced"), alertmanager=alertmanager.url) as bed:
        status = {model: run(words(bed, bed[model], tmp_path / model, *asked)) for model in ("told", "silenced")}
    assert status == {"told": 0, "silenced": 1}
    reports = {}
    for model in status:
        (report,) = (tmp_path / model).glob("*.json")
        reports[model] = json.loads(report.read_text())
    told = next(one for one in reports["told"]["alerts"] if one["name"] == "LLMServingReplicaLost")
    assert (told["receivers"], told["silenced"], told["arrival"]) == (["tickets"], False, "in time")
    assert reports["told"]["lost_unix_seconds"] < told["firing_unix_seconds"] <= told["received_unix_seconds"]
    assert reports["silenced"]["reasons"] == [
        "LLMServingReplicaLost reached Alertmanager and was silenced: nobody was told"
    ]

"""What cannot be shown takes nothing else with it."""

from __future__ import annotations

import json
import logging
from math import inf, nan

import pytest

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.render.numbers import write_json
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.web.pages.debug import answer_debug_targets
from tests.support.builders import views
from tests.support.builders.landingpage import page_of
from tests.support.builders.lying_pages import Server
from tests.support.builders.recordings import page
from tests.support.builders.target_readings import change_reading
from tests.support.servers.driven_exporter import DrivenExporter


def broken(name: str) -> TargetReading:
    """A reading that no code of ours makes: whatever looks at its engines fails."""
    good = views.reading(name, [views.engine("m")])
    assert good.page.derived is not None
    return change_reading(good, derivation=replace(good.page.derived, engines=(None,)))


@pytest.mark.parametrize("more", [0, 25])
def test_a_target_that_cannot_be_shown_says_so_and_the_others_are_there(
    more: int, caplog: pytest.LogCaptureFixture
) -> None:
    others = [views.reading(f"good-{number}", [views.engine("m")]) for number in range(1 + more)]
    with caplog.at_level(logging.ERROR):
        found = page_of(views.view(broken("bad"), *others))
    assert "This could not be shown (AttributeError)" in found.text
    assert "good-0" in found.text
    assert "target bad could not be shown" in caplog.text
    if not more:
        assert "KV cache" in found.card("good-0")


def test_the_debug_page_has_the_others_too() -> None:
    bad = change_reading(views.reading("bad", [views.engine("m")]), facts=None)
    answer = answer_debug_targets(views.view(bad, views.reading("good", [views.engine("m")])), {})
    targets = json.loads(answer.body)["targets"]
    assert [one["name"] for one in targets] == ["bad", "good"]
    assert targets[0]["problem"].startswith("This could not be shown")
    assert targets[1]["up"] is not None


def test_json_has_null_for_what_is_no_number() -> None:
    assert json.loads(write_json({"a": [nan, inf, -inf, 1.5], 3: (True, None)})) == {
        "a": [None, None, None, 1.5],
        "3": [True, None],
    }


def test_a_target_whose_series_cannot_be_made_leaves_those_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    server = Server({"/metrics": page("vllm-0.32", 60)})
    with DrivenExporter("http://one", "http://two", connect=server.connect, config=Config(targets=())) as exporter:
        first, _ = exporter.tick()
        assert first.page.derived is not None
        exporter.store.put_target(change_reading(first, derivation=replace(first.page.derived, engines=(None,))))
        with caplog.at_level(logging.ERROR):
            found = exporter.scrape()
    assert found.value("decode_tokens_total", target="replica-1") > 0
    assert "series of target replica-0 could not be rendered" in caplog.text

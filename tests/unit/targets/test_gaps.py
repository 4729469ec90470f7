"""Pages that are missing between two that came: over more than three intervals no rate is worked out, and the engine's life goes on."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.targets.pipeline import TargetPipeline
from tests.support.builders.pipelines import make_pipeline
from tests.support.rows import check_rows
from tests.support.servers.replica import Replica

INTERVAL = 5.0
PAGE = """# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
"""


class Watched:
    """A pipeline whose engine generates 100 tokens a second of its clock while it works."""

    def __init__(self, replica: Replica, pipeline: TargetPipeline, now: list[float]) -> None:
        self._replica, self._pipeline, self._now = replica, pipeline, now
        self.tokens, self.running = 5000.0, 4

    def tick(self, after: float = INTERVAL, *, answers: bool = True) -> TargetReading:
        self._now[0] += after
        self.tokens += 100.0 * after if self.running else 0.0
        page = PAGE.format(tokens=self.tokens, running=self.running)
        self._replica.routes = {"/metrics": page} if answers else {}
        return self._pipeline.tick()


@contextmanager
def watched() -> Iterator[Watched]:
    now = [100.0]
    with Replica() as replica:
        pipeline = make_pipeline(Target("a", replica.url, interval_seconds=INTERVAL), now)
        try:
            found = Watched(replica, pipeline, now)
            for _ in range(4):
                found.tick()
            yield found
        finally:
            pipeline.close()


def window_seconds(reading: TargetReading) -> float:
    return reading.page.derived.window_seconds


def decode_rate(reading: TargetReading) -> float | None:
    return reading.page.derived.engines[0].phase_tokens_per_second.get("decode")


@pytest.mark.parametrize("asleep", [16.0, 3600.0, 20 * 365 * 86_400.0])
def test_a_gap_starts_the_window_again_and_the_counters_go_on(asleep: float) -> None:
    with watched() as target:
        # the machine slept, and the engine with it
        before = target.tokens
        target.running = 0
        found = target.tick(asleep)
        assert found.server.restarts_total == 0
        assert window_seconds(found) == 0
        assert decode_rate(found) is None
        assert found.page.snapshot.engines[0].decode_tokens_total == before
        target.running = 4
        found = target.tick()
        assert window_seconds(found) == INTERVAL
        assert decode_rate(found) == pytest.approx(100.0)
        assert found.server.restarts_total == 0


@check_rows(("missed", "kept"), [(1, True), (2, True), (3, False), (8, False)])
def test_an_outage_of_more_than_three_intervals_is_a_gap(missed: int, kept: bool) -> None:
    with watched() as target:
        for _ in range(missed):
            assert target.tick(answers=False).page.up is False
        found = target.tick()
        assert found.page.up is True
        assert window_seconds(found) == (INTERVAL * (4 + missed) if kept else 0)
        assert found.server.restarts_total == 0
        assert decode_rate(target.tick()) == pytest.approx(100.0)


def test_what_was_done_in_a_gap_is_no_work_of_the_first_tick_after_it() -> None:
    with watched() as target:
        target.running = 0
        found = target.tick(3600.0)
        assert found.page.derived.engines[0].tick.busy is False
        target.running = 4
        found = target.tick(3600.0)
        assert found.page.derived.engines[0].tick.busy is True

"""The batch limit that is observed on recorded pages, against the flags that their servers were started with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest

from llm_serving_exporter.derive.derive import DeriveSettings
from llm_serving_exporter.model.derived import Limiter
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import LimitSource, ServerFacts
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model.window import DeviceSample
from llm_serving_exporter.settings.config import Config
from tests.support.builders.lying_pages import Server, change_samples
from tests.support.builders.pipelines import make_pipeline, settings_without_gpus
from tests.support.builders.recordings import recording
from tests.support.rows import check_rows

DENSE, MOE, SHARED, SGLANG, CPU = (
    "h100-vllm-0.25.1", "h100-vllm-0.25.1-moe", "h100-vllm-0.25.1-shared", "h100-sglang-0.5.17", "vllm-0.32",
)  # fmt: skip
QUEUE = range(22, 28)
# a page each 5 s, of the real servers a page each second
INTERVALS = {DENSE: 5.0, MOE: 5.0, SHARED: 5.0, SGLANG: 5.0, CPU: 1.0}
TARGET = Target("replica-0", "http://replica", gpu_model="H100 SXM", gpu_count=1)


@dataclass(frozen=True)
class Shown:
    """What one tick of the real pipeline makes of a page."""

    reading: TargetReading

    @property
    def limit(self) -> tuple[float, LimitSource | None] | None:
        """The limit of its first engine, and how it is known."""
        engine = self.reading.page.snapshot.engines[0]
        return (engine.batch_limit_requests, engine.batch_limit_source) if engine.batch_limit_requests else None


def play(
    pages: Iterable[bytes], interval_seconds: float, target: Target = TARGET, beside: Mapping[str, bytes] | None = None,
    window_seconds: float = 20.0, dram: float | None = None,
) -> list[Shown]:  # fmt: skip
    """Each page through scrape, parser, normaliser and derive, `interval_seconds` apart. `dram`: what GPM says of a single H100."""
    now, server, found = [0.0], Server({}), []
    target = replace(target, interval_seconds=interval_seconds)

    def settle(facts: ServerFacts, engines: int) -> DeriveSettings:
        known = settings_without_gpus(Config(targets=()), target, facts, engines)
        return replace(known, device=DeviceSample(now[0], 1, gpm_ratio=dram)) if dram is not None else known

    pipeline = make_pipeline(target, now, settings=settle, window_seconds=window_seconds, connect=server.connect)
    for page in pages:
        server.routes = {**(beside or {}), "/metrics": page}
        found.append(Shown(pipeline.tick()))
        pipeline.refresh_facts()
        now[0] += interval_seconds
    return found


def pages_of(run: str, numbers: Iterable[int] | None = None) -> list[bytes]:
    pages = recording(run).pages
    return [pages[number] for number in (pages if numbers is None else numbers)]


def limits(shown: Iterable[Shown]) -> set[float]:
    return {one.limit[0] for one in shown if one.limit is not None}


@check_rows(
    ("run", "limit"),
    [
        # --max-num-seqs 256 and 16; others never wait for 20 s where they decode in `-moe` and `-shared`
        (DENSE, {256.0}), (CPU, {16.0}), (MOE, set()), (SHARED, set()),
    ],
)  # fmt: skip
def test_what_is_observed_is_what_the_server_was_started_with(run: str, limit: set[float]) -> None:
    shown = play(pages_of(run), INTERVALS[run])
    assert limits(shown) == limit
    assert {one.limit[1] for one in shown if one.limit} <= {LimitSource.OBSERVED}


@check_rows(
    ("run", "numbers"),
    [
        # 2 run, 26 wait, of 8,192 tokens a step: its pages again and again, as in a run of minutes
        (DENSE, range(29, 35)), (MOE, range(23, 29)),
        # full of KV, and preempting
        (DENSE, range(57, 68)),
        # as many as there are clients
        (DENSE, range(1, 23)), (DENSE, range(34, 58)), (MOE, range(1, 23)),
    ],
)  # fmt: skip
def test_a_level_that_something_else_holds_is_none(run: str, numbers: range) -> None:
    assert limits(play(pages_of(run, numbers), 5.0)) == set()


def go_on(first: bytes, second: bytes, times: int) -> list[bytes]:
    """The two pages, and what would have followed if it had gone on as between them."""
    earlier = _counts(first)
    grown = {key: value - earlier[key] for key, value in _counts(second).items() if key in earlier}
    pages = [first, second]
    for more in range(1, times + 1):
        lines = []
        for line in second.decode().splitlines():
            key, _, value = line.rpartition(" ")
            lines.append(f"{key} {float(value) + more * grown[key]}" if grown.get(key) else line)
        pages.append(("\n".join(lines) + "\n").encode())
    return pages


def _counts(page: bytes) -> dict[str, float]:
    rows = (line.rpartition(" ") for line in page.decode().splitlines() if line and not line.startswith("#"))
    return {
        key: float(value)
        for key, _, value in rows
        if key.partition("{")[0].endswith(("_total", "_count", "_sum", "_bucket"))
    }


def test_prefill_for_minutes_is_no_batch_limit() -> None:
    for run, numbers in ((DENSE, (31, 32)), (MOE, (25, 26))):
        assert limits(play(go_on(*pages_of(run, numbers), 60), 5.0)) == set()


def test_from_the_fifth_page_of_a_queue_on_the_limiter_is_the_batch_and_no_more_bandwidth() -> None:
    queue = go_on(*pages_of(DENSE, (26, 27)), 6)
    shown = play(queue, 5.0, dram=0.502)
    assert [one.limit for one in shown] == [None] * 4 + [(256.0, LimitSource.OBSERVED)] * 4
    states = [
        one.reading.page.derived.verdict.state
        for one in shown
        if one.reading.page.derived and one.reading.page.derived.verdict
    ]
    assert Limiter.BANDWIDTH in states[:5]
    # a state holds its place until another has held for 15 s
    assert states[-1] is Limiter.BATCH_LIMIT
    derived = shown[-1].reading.page.derived
    assert derived.engines[0].batch_utilization_ratio == 1.0


@pytest.mark.parametrize(
    ("settled", "beside", "expected"),
    [
        ({"batch_limit_requests": 512, "arguments": (("--max-num-seqs", "128"),)}, {}, (512.0, LimitSource.CONFIG)),
        ({"arguments": (("--max-num-seqs", "128"),)}, {}, (128.0, LimitSource.POD)),
        (
            {"arguments": (("--max-num-seqs", "128"),)},
            {"/server_info?config_format=json": b'{"vllm_config": {"scheduler_config": {"max_num_seqs": 64}}}'},
            (64.0, LimitSource.SERVER_INFO),
        ),
    ],
    ids=["config", "pod", "server_info"],
)  # fmt: skip
def test_what_is_said_wins_over_what_is_observed(settled, beside, expected) -> None:
    shown = play(pages_of(DENSE, QUEUE), 5.0, replace(TARGET, **settled), beside)
    assert shown[-1].limit == expected


def test_sglang_says_it_itself() -> None:
    run = recording(SGLANG)
    shown = play(pages_of(SGLANG), 5.0, beside={"/server_info": run.members["endpoints/server_info.body"]})
    assert shown[-1].limit == (128.0, LimitSource.SERVER_INFO)


def test_a_restart_forgets_what_was_observed() -> None:
    """The pages of the next life begin at 0."""
    shown = play([*pages_of(DENSE, range(22, 30)), *pages_of(DENSE, range(3))], 5.0)
    assert shown[7].limit == (256.0, LimitSource.OBSERVED)
    assert shown[-1].reading.server.restarts_total == 1
    assert shown[-1].limit is None


def test_a_higher_level_raises_it_and_what_runs_beyond_it_shows_that_it_was_none() -> None:
    def show(pages: list[bytes], running: float) -> list[bytes]:
        return [change_samples(page, "vllm:num_requests_running", lambda _: running) for page in pages]

    queue = go_on(*pages_of(DENSE, (26, 27)), 18)
    shown = play(
        [*show(queue[:8], 230.0), *show(queue[8:9], 240.0), *show(queue[9:14], 256.0), *show(queue[14:], 100.0)], 5.0
    )
    assert shown[7].limit == (230.0, LimitSource.OBSERVED)
    assert [one.limit for one in shown[8:13]] == [None] * 5
    assert shown[13].limit == (256.0, LimitSource.OBSERVED)
    assert shown[-1].limit == (256.0, LimitSource.OBSERVED), "a lower level says nothing"

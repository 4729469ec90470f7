"""A real server stopped and started under load: no rate across the gap, no spike, down and up again, and the documented loss."""

import json

from llm_serving_exporter.catalogue.cost import COSTS
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from tests.support.builders.recordings import recording
from tests.support.servers.driven_exporter import DrivenExporter, hand_driven_host
from tests.support.servers.exporter_process import Scraped
from tests.support.servers.stepped import SteppedServer

RUN = recording("vllm-0.32-restart")
LAST_OF_FIRST_LIFE, FIRST_OF_SECOND_LIFE = 22, 72


def walk_second_by_second() -> dict[int, TargetReading]:
    """Every second of the recording through the host over HTTP, refused where the server refused; the window is 10 s."""
    found: dict[int, TargetReading] = {}
    server = SteppedServer(RUN)
    port = server.port
    host, clock = hand_driven_host(Config(targets=(), window_seconds=10.0))
    hosted = host.add_target(Target("replica-0", server.url))
    listening = True
    try:
        for second in range(max(RUN.pages) + 1):
            clock.seconds += 1.0
            if second in RUN.pages:
                if not listening:
                    server, listening = SteppedServer(RUN, port=port), True
                server.show(second)
            elif listening:
                server.close()
                listening = False
            found[second] = hosted.tick()
    finally:
        host.close()
        if listening:
            server.close()
    return found


def test_rates_over_a_restart_start_anew_and_never_spike() -> None:
    readings = walk_second_by_second()
    tokens = {number: decode(page.decode()) for number, page in RUN.pages.items()}
    steps = [
        tokens[number] - tokens[number - 1]
        for number in tokens
        if number - 1 in tokens and number != FIRST_OF_SECOND_LIFE
    ]
    rates = [
        rate
        for reading in readings.values()
        if reading.page.up and reading.page.derived
        for engine in reading.page.derived.engines
        for phase, rate in engine.phase_tokens_per_second.items()
        if phase == "decode"
    ]
    assert len(rates) > 40
    # no window can be faster than the fastest second of the engine's own page
    assert max(rates) <= max(steps)

    assert readings[LAST_OF_FIRST_LIFE].server.state is State.READY
    assert [readings[second].page.up for second in (23, 24, 71)] == [False, False, False]
    assert readings[24].server.state is State.DOWN
    back = readings[FIRST_OF_SECOND_LIFE]
    assert (back.page.up, back.server.state, back.server.restarts_total) == (True, State.READY, 1)
    assert back.page.derived.window_seconds == 0.0
    assert [engine.phase_tokens_per_second for engine in back.page.derived.engines] == [{}]
    assert back.server.start_unix_seconds != readings[0].server.start_unix_seconds


def decode(page: str) -> float:
    line = next(line for line in page.splitlines() if line.startswith("vllm:generation_tokens_total"))
    return float(line.rsplit(" ", 1)[1])


def test_the_exporter_sees_the_server_go_and_come_and_loses_what_the_server_lost() -> None:
    server = SteppedServer(RUN)
    port = server.port
    server.show(LAST_OF_FIRST_LIFE)
    with DrivenExporter(server.url) as exporter:

        def after_a_tick() -> Scraped:
            exporter.tick()
            return exporter.scrape()

        page = after_a_tick()
        assert page.value("target_up") == 1
        first_life = page.total("decode_tokens_total")
        server.close()
        page = after_a_tick()
        assert page.value("target_up") == 0  # at once, while the last good values stay for three intervals
        assert page.total("decode_tokens_total") == first_life
        for _ in range(3):
            page = after_a_tick()
        assert page.series("decode_tokens_total") == {}
        server = SteppedServer(RUN, port=port)
        server.show(FIRST_OF_SECOND_LIFE)
        page = after_a_tick()
        assert (page.value("target_up"), page.value("target_restarts_total")) == (1, 1)
        assert page.total("decode_tokens_total") == 0
        server.show(max(RUN.pages))
        second_life = after_a_tick().total("decode_tokens_total")
        server.close()
    # the client received 9230 tokens; what the server counted in its last second went with it (captures README)
    assert (first_life, second_life) == (4296, 4891)
    assert json.loads(RUN.members["client/truth.json"])["steady"]["gen_tokens_received"] == 9230


def test_an_exporter_that_restarts_loses_nothing_and_makes_no_reset() -> None:
    run = recording("vllm-0.32")

    def pages(*numbers: int) -> list[Scraped]:
        found = []
        with DrivenExporter(server.url) as exporter:
            for number in numbers:
                server.show(number)
                exporter.tick()
                found.append(exporter.scrape())
        return found

    with SteppedServer(run) as server:
        first, before = pages(60, 90)
        after, last = pages(95, 119)
    counters = {
        name
        for name, _ in first.samples
        if name.startswith("llm_serving_") and name.endswith(("_total", "_bucket", "_count"))
    }
    ours = {
        name
        for name in counters
        if name.startswith(("llm_serving_scrape_", "llm_serving_exporter_", "llm_serving_target_"))
    } | {metric.full_name for metric in COSTS}
    checked = 0
    for key, value in before.samples.items():
        if key[0] in counters - ours:
            assert after.samples[key] >= value, key
            checked += 1
    assert checked > 130
    # last minus first over the restart is what the engine counted
    tokens = {number: decode(run.pages[number].decode()) for number in (60, 119)}
    assert last.total("decode_tokens_total") - first.total("decode_tokens_total") == tokens[119] - tokens[60]

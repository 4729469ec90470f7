"""Two targets of one pod whose pages are one engine's."""

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot
from llm_serving_exporter.model.target import Identity, Target
from llm_serving_exporter.targets.several_servers import SameEngines
from tests.support.builders.target_readings import make_reading
from tests.support.rows import check_rows

START = 1_700_000_000.42


def target(port: int, uid: str = "u", gpus: int | None = None) -> Target:
    return Target(f"llm/a:{port}", f"http://10.0.0.1:{port}", identity=Identity(pod_uid=uid), gpu_count=gpus)


ENGINE, PROXY = target(8200, gpus=1), target(8000)


def read(of: Target, at: float, tokens: float, start: float | None = START, **more: float) -> TargetReading:
    finished = {"stop": tokens / 100}
    engine = EngineSnapshot("m", "0", decode_tokens_total=tokens, requests_finished_total=finished, **more)
    return make_reading(of, snapshot=Snapshot((engine,), "vllm", START + at, at, process_start_unix_seconds=start))


def test_a_page_between_two_pages_of_the_engine_is_the_engines() -> None:
    same = SameEngines()
    assert not same.update([read(ENGINE, 0, 100), read(PROXY, 3, 160)])
    assert same.update([read(ENGINE, 5, 200), read(PROXY, 3, 160)])
    assert same.repeats == {PROXY.name: ENGINE.name}
    # the other one is not read any more
    assert not same.update([read(ENGINE, 10, 300)])
    assert same.repeats == {PROXY.name: ENGINE.name}


def test_the_order_of_the_readings_does_not_matter() -> None:
    same = SameEngines()
    same.update([read(PROXY, 0, 100), read(ENGINE, 3, 160)])
    assert same.update([read(PROXY, 5, 200), read(ENGINE, 3, 160)])
    assert same.repeats == {PROXY.name: ENGINE.name}


@check_rows(
    ("low", "proxy", "high"),
    [
        ((0, 100), (3, 99), (5, 200)),  # fewer than before
        ((0, 100), (3, 201), (5, 200)),  # more than afterwards
        ((0, 0), (3, 0), (5, 0)),  # nothing that could tell them from each other
        ((4, 100), (3, 100), (5, 100)),  # not read between the two
    ],
)
def test_other_counts_are_another_engine(
    low: tuple[float, float], proxy: tuple[float, float], high: tuple[float, float]
) -> None:
    same = SameEngines()
    same.update([read(ENGINE, *low), read(PROXY, *proxy)])
    assert not same.update([read(ENGINE, *high), read(PROXY, *proxy)])
    assert same.repeats == {}


def test_another_start_other_families_or_another_pod_are_another_engine() -> None:
    for other in (
        read(PROXY, 3, 160, start=START + 0.01),
        read(PROXY, 3, 160, start=None),
        read(PROXY, 3, 160, preemptions_total=0.0),
        read(target(8000, uid="v"), 3, 160),
        read(target(8000, uid=""), 3, 160),
    ):
        same = SameEngines()
        same.update([read(ENGINE, 0, 100), other])
        assert not same.update([read(ENGINE, 5, 200), other])


def test_what_was_said_of_a_pod_ends_with_it() -> None:
    same = SameEngines()
    same.update([read(ENGINE, 0, 100), read(PROXY, 3, 160)])
    same.update([read(ENGINE, 5, 200), read(PROXY, 3, 160)])
    assert same.update([read(replace(ENGINE, identity=Identity(pod_uid="next")), 10, 1)])
    assert same.repeats == {}

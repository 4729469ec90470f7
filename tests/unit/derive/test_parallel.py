"""How an engine's work is spread: who is believed, and what is a guess."""

import pytest

from llm_serving_exporter.gpus.attribution import Spread, spread_engines
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.target import Target

NOTHING = ServerFacts()


def target(**settings: object) -> Target:
    return Target("t", "http://t:8000", **settings)


def test_configuration_wins_over_the_servers_word() -> None:
    said = ServerFacts(tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1)
    assert spread_engines(target(), said, 2, 1) == Spread(Parallel(2), 2.0)
    told = spread_engines(target(tensor_parallel_size=4, pipeline_parallel_size=2), said, 8, 1)
    assert told == Spread(Parallel(4, 2), 8.0)


def test_without_a_word_all_gpus_of_an_engine_are_one_group_and_that_is_a_guess() -> None:
    assert spread_engines(target(), NOTHING, 4, 1) == Spread(Parallel(4), 4.0, assumed=True)
    assert spread_engines(target(gpu_count=4), NOTHING, None, 1) == Spread(Parallel(4), 4.0, assumed=True)
    assert spread_engines(target(pipeline_parallel_size=2), NOTHING, 8, 1) == Spread(Parallel(4, 2), 8.0, assumed=True)


@pytest.mark.parametrize(("gpus", "stages"), [(1, None), (2, 2)])
def test_one_gpu_a_stage_is_no_guess(gpus: int, stages: int | None) -> None:
    assert not spread_engines(target(pipeline_parallel_size=stages), NOTHING, gpus, 1).assumed


def test_each_of_several_engines_has_its_share() -> None:
    """Their experts are shared: with and without expert parallelism each engine holds its part."""
    assert spread_engines(target(), NOTHING, 8, 4) == Spread(Parallel(2, 1, 4, 8), 2.0, assumed=True)
    assert spread_engines(target(experts_shared=False), NOTHING, 4, 4) == Spread(Parallel(1, 1, 4), 1.0)
    assert spread_engines(target(), ServerFacts(experts_spread=False), 4, 4).parallel == Parallel(1, 1, 4)


def test_ranks_beyond_those_on_the_page() -> None:
    """A page that shows one rank of eight: the experts are spread over all of them."""
    assert spread_engines(
        target(), ServerFacts(tensor_parallel_size=1, data_parallel_size=8), 1, 1
    ).parallel == Parallel(1, 1, 8, 8)


def test_decode_context_parallelism_by_the_server_or_the_configuration() -> None:
    said = ServerFacts(tensor_parallel_size=8, decode_context_parallel_size=4)
    assert spread_engines(target(), said, 8, 1).parallel == Parallel(8, context=4)
    assert spread_engines(target(decode_context_parallel_size=2), said, 8, 1).parallel == Parallel(8, context=2)
    odd = spread_engines(target(decode_context_parallel_size=3), said, 8, 1)
    assert odd.parallel == Parallel(8), "no engine starts like this"


def test_an_engine_that_spans_nodes_has_more_gpus_than_are_seen_here() -> None:
    told = spread_engines(target(), ServerFacts(tensor_parallel_size=8, pipeline_parallel_size=2), 8, 1)
    assert told == Spread(Parallel(8, 2), 16.0)


def test_gpus_that_the_server_leaves_idle_are_the_engines_all_the_same() -> None:
    assert spread_engines(target(gpu_count=2), ServerFacts(tensor_parallel_size=1), None, 1) == Spread(Parallel(1), 2.0)


def test_what_cannot_be_divided_is_not_known() -> None:
    assert spread_engines(target(), NOTHING, 3, 2) == Spread(None, 1.5)
    assert spread_engines(target(pipeline_parallel_size=3), NOTHING, 8, 1) == Spread(None, 8.0)
    assert spread_engines(target(), NOTHING, None, 1) == Spread(None, None)
    assert spread_engines(target(), NOTHING, 0, 0) == Spread(None, None)


def test_the_servers_word_needs_no_gpus() -> None:
    assert spread_engines(target(), ServerFacts(tensor_parallel_size=4), None, 1) == Spread(Parallel(4), 4.0)


def test_the_servers_own_count_of_accelerators_stands_where_no_gpu_is_seen() -> None:
    """SGLang's /v1/loads says how many an engine has; NVML and the configuration win."""
    said = ServerFacts(gpu_count=4)
    assert spread_engines(target(), said, None, 2) == Spread(Parallel(4, 1, 2, 8), 4.0, assumed=True)
    assert spread_engines(target(gpu_count=2), said, None, 1) == Spread(Parallel(2), 2.0, assumed=True)
    assert spread_engines(target(), said, 8, 1) == Spread(Parallel(8), 8.0, assumed=True)

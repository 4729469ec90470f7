"""What fits the GPUs, and how many sequences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.planning import check_fit, least_gpus
from llm_serving_exporter.model.shape import AttentionLayers, RecurrentLayers, Span
from tests.support.models.roofs import BF16, FP8, LLAMA_8B, LLAMA_70B, flat, roof, served, shape
from tests.support.rows import check_rows


def test_llama_8b_on_one_gpu() -> None:
    """80 GB x 0.9 - 2 GB - 16.06 GB = 53.94 GB; a sequence of 8,192 tokens takes 1 GiB."""
    found = check_fit(roof(served(LLAMA_8B)), 80e9, utilisation=0.9, overhead_bytes=2e9, context_tokens=8192)
    assert found.fits
    assert found.weight_bytes == 2 * 8_030_261_248
    assert found.free_kv_bytes == pytest.approx(53.94e9, rel=1e-4)
    assert found.kv_bytes_per_sequence == 2**30
    assert found.max_batch == 50
    assert found.shortfall_bytes == 0


def test_overhead_is_of_each_gpu() -> None:
    one = check_fit(roof(served(LLAMA_70B), tensor=4), 80e9, overhead_bytes=1e9, context_tokens=4096)
    assert one.free_kv_bytes == pytest.approx(4 * 79e9 - 141_107_412_992)


@pytest.mark.parametrize(("tensor", "pipeline"), [(8, 1), (1, 8), (2, 4)])
def test_weights_are_spread_over_all_gpus(tensor: int, pipeline: int) -> None:
    found = check_fit(roof(served(LLAMA_70B), tensor=tensor, pipeline=pipeline), 80e9, context_tokens=4096)
    assert found.free_kv_bytes == pytest.approx(8 * 80e9 - 141_107_412_992)


def test_a_model_that_does_not_fit_says_what_is_missing() -> None:
    found = check_fit(roof(served(LLAMA_70B)), 80e9, context_tokens=4096)
    assert not found.fits
    assert found.max_batch == 0
    assert found.free_kv_bytes == pytest.approx(-61.1e9, rel=1e-3)
    assert found.shortfall_bytes == pytest.approx(61.1e9 + 1.25 * 2**30, rel=1e-3)


def test_weights_without_room_for_one_sequence_do_not_fit() -> None:
    """As engines see it: they refuse to start when one request of the longest context has no room."""
    found = check_fit(roof(flat(39.9e9)), 80e9, context_tokens=4096)
    assert found.max_batch is None
    tight = check_fit(roof(flat(39.9e9, BF16, shape((AttentionLayers(80, 2048, 8, 0, 0),)))), 80e9, context_tokens=4096)
    assert tight.free_kv_bytes > 0
    assert (tight.fits, tight.max_batch) == (False, 0)
    assert tight.shortfall_bytes == 1.25 * 2**30 - tight.free_kv_bytes


def test_a_model_that_keeps_nothing_has_no_largest_batch() -> None:
    encoder = roof(flat(1e8, form=shape(encoder=True)))
    assert (
        check_fit(encoder, 80e9, context_tokens=512).fits,
        check_fit(encoder, 80e9, context_tokens=512).max_batch,
    ) == (
        True,
        None,
    )
    assert (
        check_fit(encoder, 1e8, context_tokens=512).fits,
        check_fit(encoder, 1e8, context_tokens=512).max_batch,
    ) == (False, 0)


def test_more_ranks_than_kv_heads_keep_copies() -> None:
    one, two = (check_fit(roof(served(LLAMA_8B), tensor=ranks), 80e9, context_tokens=4096) for ranks in (8, 16))
    assert two.kv_bytes_per_sequence == 2 * one.kv_bytes_per_sequence


def test_windows_are_what_sliding_layers_keep() -> None:
    form = shape((AttentionLayers(1, 1024, 8, 0, 0, Span.SLIDING, 1000),), (RecurrentLayers(2, 500, 0),))
    it = roof(flat(1e9, form=form))
    assert check_fit(it, 80e9, context_tokens=10_000).kv_bytes_per_sequence == 1000 * 2048 + 4000


def test_experts_of_several_engines() -> None:
    model = flat(10e9, FP8, shape(experts=64, per_token=4), expert_parameters=1e9)
    assert check_fit(roof(model), 80e9, context_tokens=1).free_kv_bytes == pytest.approx(6e9)
    assert check_fit(roof(model, sharing=8), 80e9, context_tokens=1).free_kv_bytes == pytest.approx(8 * 62e9)


@check_rows(("weights", "memory", "told"), [(1.0, 80e9, 1), (80e9, 80e9, 1), (80.1e9, 80e9, 2), (1.0, 0.0, None)])
def test_least_gpus(weights: float, memory: float, told: int | None) -> None:
    assert least_gpus(weights, memory) == told


@given(st.floats(1e9, 2e11), st.floats(0.1, 1), st.floats(1, 1e6))
def test_the_largest_batch_fits_and_one_more_does_not(memory: float, utilisation: float, context: float) -> None:
    found = check_fit(roof(served(LLAMA_8B)), memory, utilisation=utilisation, context_tokens=context)
    assert found.fits == (found.max_batch > 0)
    if found.fits:
        slack = 1e-6 * memory
        assert found.max_batch * found.kv_bytes_per_sequence <= found.free_kv_bytes + slack
        assert (found.max_batch + 1) * found.kv_bytes_per_sequence > found.free_kv_bytes - slack
    else:
        assert found.shortfall_bytes > 0

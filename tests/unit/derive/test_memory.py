"""What takes up GPU memory."""

import pytest

from llm_serving_exporter.derive.kv import split_memory
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts, RecurrentLayers
from llm_serving_exporter.model.snapshot import Absence
from tests.support.builders.windows import window
from tests.support.models.roofs import GPT_OSS, LLAMA_8B, flat, served, shape
from tests.support.models.shapes import shape_of

LLAMA = served(LLAMA_8B)
DEEPSEEK = served(shape_of("DeepSeek-V3"))
POOL = window(kv_cache_capacity_tokens=100_000.0)


def parts(
    model: ModelFacts, parallel: Parallel | None = None, used: float | Absence = Absence.GPUS_UNKNOWN
) -> dict[str, float]:
    found = split_memory(POOL, model, parallel or Parallel(), used)
    assert not isinstance(found, Absence)
    return found


def test_weights_the_whole_pool_and_the_rest() -> None:
    found = parts(LLAMA, used=40e9)
    assert found["weights"] == 8_030_261_248 * 2
    assert found["kv"] == 100_000 * 131_072
    assert found["other"] == 40e9 - found["weights"] - found["kv"]


def test_less_in_use_than_weights_and_pool_leaves_the_rest_out() -> None:
    """Another GPU than the engine's, or not yet loaded."""
    assert parts(LLAMA, used=1e9).keys() == {"weights", "kv"}
    assert parts(LLAMA).keys() == {"weights", "kv"}


@pytest.mark.parametrize(("tensor", "copies"), [(1, 1), (8, 1), (16, 2)])
def test_ranks_beyond_the_kv_heads_keep_copies(tensor: int, copies: int) -> None:
    assert parts(LLAMA, Parallel(tensor))["kv"] == 100_000 * 131_072 * copies


def test_each_rank_keeps_the_latent() -> None:
    assert parts(DEEPSEEK, Parallel(8))["kv"] == 100_000 * 70_272 * 8


def test_experts_spread_over_engines_are_held_in_part() -> None:
    """V3: 58 layers of 256 experts of 3 x 7168 x 2048; each of 8 engines holds 32."""
    routed = 58 * 256 * 3 * 7168 * 2048 * 2
    assert parts(DEEPSEEK)["weights"] - parts(DEEPSEEK, Parallel(1, 1, 8, 8))["weights"] == pytest.approx(
        routed * 7 / 8
    )


def test_layers_that_forget_have_no_kv_part_and_so_no_rest() -> None:
    for form in (shape(GPT_OSS), shape(recurrent=(RecurrentLayers(1, 1, 1),))):
        assert parts(flat(1e9, form=form), used=40e9).keys() == {"weights"}


def test_an_encoder_has_no_kv_and_its_rest_is_known() -> None:
    found = parts(flat(1e9, form=shape(encoder=True)), used=5e9)
    assert found == {"weights": 2e9, "other": 3e9}


def test_an_unknown_pool_leaves_the_rest_out() -> None:
    found = split_memory(window(), LLAMA, Parallel(), 40e9)
    assert isinstance(found, dict)
    assert found.keys() == {"weights"}


def test_the_checkpoints_own_size_where_it_is_what_is_served() -> None:
    near, twice = LLAMA.weight_bytes * 1.02, LLAMA.weight_bytes * 2
    assert parts(replace(LLAMA, checkpoint_bytes=int(near)))["weights"] == int(near)
    # quantised while it was loaded
    assert parts(replace(LLAMA, checkpoint_bytes=int(twice)))["weights"] == LLAMA.weight_bytes


def test_what_is_missing_is_said() -> None:
    assert split_memory(POOL, Absence.MODEL_UNKNOWN, Parallel(), 1.0) is Absence.MODEL_UNKNOWN
    assert split_memory(POOL, LLAMA, None, 1.0) is Absence.GPUS_UNKNOWN

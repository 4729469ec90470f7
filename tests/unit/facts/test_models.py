"""The model catalogue as it is shipped: every row against a count that was not made here, and what parse refuses."""

from __future__ import annotations

import copy
import subprocess
import sys
import tomllib
from importlib.resources import files

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.architectures.registry import geometry
from llm_serving_exporter.facts.model_files import ModelEntry
from llm_serving_exporter.facts.models import parse
from llm_serving_exporter.facts.names import find
from llm_serving_exporter.facts.quantisation import assign
from llm_serving_exporter.facts.weighing import stored_bytes, weigh
from tests.support.models import dense_models, hybrid_models, moe_models
from tests.support.waiting import PATIENCE_SECONDS

DOCUMENT = tomllib.loads(files("llm_serving_exporter.facts").joinpath("models.toml").read_text(encoding="utf-8"))
CATALOGUE = parse(DOCUMENT)
ROWS = {entry.name: entry for entry in CATALOGUE}

# Parameters of the row's own fields in transformers 5.23.0 on the meta device (AutoConfig.for_model, AutoModelForCausalLM or AutoModel).
# The language parts of Qwen-VL have no class of their own there: the text model of the same sizes. Kimi-K2: as deepseek_v3, which its
# modelling code is. NV-Embed-v2: facts model-math B.7 and its pooler's three LayerNorms
PARAMETERS = {
    "Llama-2-7B": 6_738_415_616, "Llama-2-13B": 13_015_864_320, "Llama-2-70B": 68_976_648_192,
    "Llama-3.1-8B": 8_030_261_248, "Llama-3.1-70B": 70_553_706_496, "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400, "Llama-3.2-3B": 3_212_749_824, "Llama-4-Scout": 107_769_861_120,
    "Llama-4-Maverick": 400_711_848_960, "CodeLlama-34B": 33_744_232_448, "TinyLlama-1.1B": 1_100_048_384,
    "Mistral-7B-v0.1": 7_241_732_096, "Mistral-7B-v0.2": 7_241_732_096, "Mistral-7B-v0.3": 7_248_023_552,
    "Mistral-Nemo-12B": 12_247_782_400, "Mistral-Small-24B": 23_572_403_200, "Mistral-Small-3.1-24B": 23_572_403_200,
    "Mistral-Large-123B": 122_610_069_504, "Mixtral-8x7B": 46_702_792_704, "Mixtral-8x22B": 140_620_634_112,
    "Mixtral-8x22B-Instruct-v0.1": 140_630_071_296, "Qwen2.5-0.5B": 494_032_768, "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688, "Qwen2.5-7B": 7_615_616_512, "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352, "Qwen2.5-72B": 72_706_203_648, "Qwen2.5-VL-7B": 7_615_616_512,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000, "Qwen3-0.6B": 596_049_920, "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096, "Qwen3-8B": 8_190_735_360, "Qwen3-14B": 14_768_307_200, "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624, "Qwen3-235B-A22B": 235_093_634_560, "Qwen3-Coder-480B-A35B": 480_154_875_392,
    "Qwen3-Next-80B-A3B": 79_674_391_296, "Qwen3-VL-8B": 8_190_735_360, "Qwen3-VL-32B": 32_762_123_264,
    "Qwen3-VL-30B-A3B": 30_532_122_624, "Qwen3-VL-235B-A22B": 235_093_634_560, "Qwen3.5-27B": 26_895_998_464,
    "Qwen3.5-35B-A3B": 34_660_610_688, "Qwen3.5-122B-A10B": 122_111_526_912, "Qwen3.5-397B-A17B": 396_346_350_336,
    "Qwen1.5-MoE-A2.7B": 14_315_784_192, "Gemma-2B": 2_506_172_416, "Gemma-7B": 8_537_680_896,
    "Gemma-2-2B": 2_614_341_888, "Gemma-2-9B": 9_241_705_984, "Gemma-2-27B": 27_227_128_320,
    "Gemma-3-1B": 999_885_952, "Gemma-3-4B": 3_880_263_168, "Gemma-3-12B": 11_766_034_176,
    "Gemma-3-27B": 27_009_346_304, "Phi-2": 2_779_683_840, "Phi-3-mini-4k": 3_821_079_552,
    "Phi-3.5-mini": 3_821_079_552, "Phi-3-medium-4k": 13_960_238_080, "Phi-3.5-MoE": 41_873_153_344,
    "Phi-4": 14_659_507_200, "Phi-4-mini": 3_836_021_760, "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V2": 235_741_434_880, "DeepSeek-V3": 671_026_404_352, "Kimi-K2": 1_026_408_209_408,
    "Kimi-K2-Thinking": 1_026_408_209_408, "Kimi-K2.5": 1_026_408_209_408, "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672, "MiniMax-M2.5": 228_689_748_992, "Jamba-v0.1": 51_570_323_328,
    "Jamba-1.5-Large": 398_555_145_696, "Nemotron-H-56B": 56_324_350_464, "Nemotron-3-Nano-30B-A3B": 31_577_937_344,
    "Nemotron-3-Super-120B-A12B": 120_668_687_360, "GPT-J-6B": 6_050_882_784, "bge-m3": 567_754_752,
    "multilingual-e5-large": 559_890_432, "bge-large": 335_141_888, "bge-base-en-v1.5": 109_482_240,
    "all-MiniLM-L6-v2": 22_713_216, "e5-mistral-7b": 7_110_660_096, "NV-Embed-v2": 7_851_016_192,
    "Qwen3-Embedding-8B": 7_567_295_488,
}  # fmt: skip
# name: parameters, active, of which a decode step reads, KV bytes per token at 2 bytes an element (facts model-math B.8)
TABLE_B8 = {
    **{name: (row[1], row[1], row[2], row[3]) for name, row in dense_models.TABLE.items()},
    **{name: row[1:5] for name, row in moe_models.TABLE.items()},
    "Jamba-v0.1": (51_570_323_328, 12_110_311_296, 11_841_875_840, 16_384),
}
# bytes of published checkpoints, from their index or card, in GB
CHECKPOINTS = {"gpt-oss-120b": 65.25, "gpt-oss-20b": 13.76, "Kimi-K2-Thinking": 594.0}


def test_there_are_enough_models_and_each_has_a_count() -> None:
    assert len(ROWS) >= 45
    assert ROWS.keys() == PARAMETERS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_parameters(name: str) -> None:
    assert geometry(ROWS[name].config).parameters_total == PARAMETERS[name]


@pytest.mark.parametrize("name", TABLE_B8)
def test_table_b8(name: str) -> None:
    shape = geometry(find(name, CATALOGUE).entry.config)
    found = (
        shape.parameters_total,
        shape.parameters_active,
        shape.decode_read_parameters,
        2 * shape.kv_elements_stored(),
    )
    assert found == TABLE_B8[name]


@pytest.mark.parametrize(
    ("name", "config"),
    [
        *((name, row[0]) for name, row in (*dense_models.TABLE.items(), *moe_models.TABLE.items())),
        ("Jamba-v0.1", hybrid_models.JAMBA),
        ("Nemotron-H-56B", hybrid_models.NEMOTRON_H_56B),
        ("Nemotron-3-Nano-30B-A3B", hybrid_models.NEMOTRON_3_NANO),
        ("Nemotron-3-Super-120B-A12B", hybrid_models.NEMOTRON_3_SUPER),
        ("Qwen3-Next-80B-A3B", hybrid_models.QWEN3_NEXT_80B),
        ("bge-m3", hybrid_models.BGE_M3),
        ("NV-Embed-v2", hybrid_models.NV_EMBED_2),
    ],
)
def test_a_row_leaves_out_nothing_that_shapes_the_model(name: str, config: dict[str, object]) -> None:
    """Against fuller copies of the same config.json: KV cache, windows, chunks, recurrent state."""
    short, full = geometry(find(name, CATALOGUE).entry.config), geometry(config)
    assert short.attention == full.attention
    assert short.recurrent == full.recurrent
    assert (short.encoder, short.mla, short.tied) == (full.encoder, full.mla, full.tied)
    assert short.decode_read_parameters == full.decode_read_parameters


@pytest.mark.parametrize(
    ("name", "full", "windowed", "window"),
    [
        ("gpt-oss-20b", 12, 12, 128), ("Gemma-3-27B", 10, 52, 1024), ("Gemma-2-9B", 21, 21, 4096), ("Mistral-7B-v0.1", 0, 32, 4096),
        ("Mistral-7B-v0.2", 32, 0, None), ("Llama-4-Scout", 12, 36, 8192), ("Qwen2.5-7B", 28, 0, None),
    ],
)  # fmt: skip
def test_windows(name: str, full: int, windowed: int, window: int | None) -> None:
    """Layer splits of facts B.9."""
    groups = geometry(ROWS[name].config).attention
    assert sum(group.layers for group in groups if group.window_tokens is None) == full
    assert sum(group.layers for group in groups if group.window_tokens is not None) == windowed
    assert {group.window_tokens for group in groups} - {None} == ({window} if window else set())


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_quantised_checkpoints_are_as_large_as_published(name: str) -> None:
    shape = geometry(ROWS[name].config)
    stored = stored_bytes(weigh(shape, assign(ROWS[name].config, None, shape)), shape.experts)
    assert stored / 1e9 == pytest.approx(CHECKPOINTS[name], rel=0.001)


@pytest.mark.parametrize("name", ["DeepSeek-V3", "Kimi-K2", "MiniMax-M2.5"])
def test_models_published_in_fp8_are_weighed_in_fp8(name: str) -> None:
    shape = geometry(ROWS[name].config)
    groups = weigh(shape, assign(ROWS[name].config, None, shape))
    assert stored_bytes(groups, shape.experts) == pytest.approx(PARAMETERS[name], rel=0.01)


def test_every_row_has_source_and_date() -> None:
    assert all(entry.source and entry.date.startswith("20") for entry in ROWS.values())


def test_the_catalogue_is_read_once_and_only_when_asked_for() -> None:
    assert loader.model_catalogue() is loader.model_catalogue()
    script = (
        "from llm_serving_exporter.facts import loader\n"
        "assert loader.model_catalogue.cache_info().currsize == 0\n"
        "assert loader.gpu_catalogue.cache_info().currsize == 0\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_SECONDS)


def _changed(**changes: object) -> dict[str, object]:
    document = copy.deepcopy(DOCUMENT)
    row = document["model"][0]
    for key, value in changes.items():
        if value is None:
            del row[key]
        else:
            row[key] = value
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "needs \\[sources\\] and \\[\\[model\\]\\] rows"),
        ({"sources": {}, "model": []}, "needs \\[sources\\] and"),
        ({"sources": {}, "model": [7]}, "model 1: needs a name"),
        (_changed(name=None), "model 1: needs a name"),
        (_changed(config=None), "Llama-2-7B: keys are missing or not known: config"),
        (_changed(total=7), "Llama-2-7B: keys are missing or not known: total"),
        (_changed(source="hearsay"), "Llama-2-7B: source 'hearsay' is not in"),
        (_changed(source=["mlc"]), "Llama-2-7B: source \\['mlc'\\] is not in"),
        (_changed(config=[1]), "Llama-2-7B: config is not a table"),
        (_changed(also="x"), "Llama-2-7B: also is not a list of texts"),
        (_changed(also=["Llama 2 13B"]), "Llama-2-13B: 'Llama-2-13B' is already Llama-2-7B's"),
        (_changed(also=["Läma"]), "Llama-2-7B: 'Läma' is no name"),
    ],
)
def test_refused(document: dict[str, object], message: str) -> None:
    with pytest.raises(FactsError, match=message) as caught:
        parse(document)
    assert caught.value.reason == "model_unknown"


def test_nulls_and_quantisation_come_as_config_json_has_them() -> None:
    document = _changed(nulls=["sliding_window"], quantization={"quant_method": "fp8"}, more={"head_dim": 64})
    entry: ModelEntry = parse(document)[0]
    assert entry.config["sliding_window"] is None
    assert entry.config["quantization_config"] == {"quant_method": "fp8"}
    assert entry.config["head_dim"] == 64

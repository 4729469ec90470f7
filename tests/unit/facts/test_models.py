"""The model catalogue as it is shipped, every row against a count that was not made here, and a user's own models before it."""

import json
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.models import ModelEntry, listed, parse
from llm_serving_exporter.facts.quantisation import assign, weigh
from llm_serving_exporter.model.shape import Part
from llm_serving_exporter.model.target import ModelSettings, ServedModel
from tests.support.models.modelfolders import stored_bytes
from tests.support.models.shapes import texts, whole_catalogue
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.waiting import PATIENCE_SECONDS

# parameters of each row, and who says so: see tests/truth/names/README.md
COUNTS = {
    name: (int(count), how)
    for name, count, how in (
        line.split(" | ") for line in (ROOT / "tests/truth/names/parameters.txt").read_text("utf-8").splitlines()
    )
}
# what a published total may hold beside the language part: a share of it, or an encoder of this many parameters beside a small model
MOST_BESIDE_RATIO, MOST_BESIDE = 0.13, 1_300_000_000
# bytes of published checkpoints, from their index or card, in GB
CHECKPOINTS = {"gpt-oss-120b": 65.25, "gpt-oss-20b": 13.76, "Kimi-K2-Thinking": 594.0}


@cache
def read_rows() -> dict[str, ModelEntry]:
    return {entry.name: entry for entry in whole_catalogue()}


def test_there_are_enough_models_and_each_has_a_count() -> None:
    names_of_all = [name for entry in whole_catalogue() for name in (entry.name, *entry.also)]
    assert len(names_of_all) >= 900
    assert len({repr(geometry(entry.config)) for entry in whole_catalogue()}) >= 350
    assert read_rows().keys() == COUNTS.keys()
    assert sum(how == "class" for _, how in COUNTS.values()) >= 400


@check_rows("name", read_rows)
def test_parameters(name: str) -> None:
    """transformers' own class on the meta device, else the published total."""
    shape, (count, how) = geometry(read_rows()[name].config), COUNTS[name]
    if how == "class":
        assert shape.parameters_total == count
    elif how == "headless":
        # a class of a language part that leaves lm_head to what encloses it
        lm_head = sum(module.parameters for module in shape.modules if module.part is Part.LM_HEAD)
        assert shape.parameters_total - lm_head == count
    else:
        assert how == "published"
        beside = max(MOST_BESIDE_RATIO * count, MOST_BESIDE)
        assert shape.parameters_total - 0.01 * count <= count <= shape.parameters_total + beside


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_quantised_checkpoints_are_as_large_as_published(name: str) -> None:
    shape = geometry(read_rows()[name].config)
    stored = stored_bytes(weigh(shape, assign(read_rows()[name].config, None, shape)), shape.experts)
    assert stored / 1e9 == pytest.approx(CHECKPOINTS[name], rel=0.001)


@pytest.mark.parametrize("name", ["DeepSeek-V3", "Kimi-K2", "MiniMax-M2.5"])
def test_models_published_in_fp8_are_weighed_in_fp8(name: str) -> None:
    shape = geometry(read_rows()[name].config)
    groups = weigh(shape, assign(read_rows()[name].config, None, shape))
    assert stored_bytes(groups, shape.experts) == pytest.approx(COUNTS[name][0], rel=0.01)


def test_every_row_has_source_and_date() -> None:
    assert all(entry.source and entry.date.startswith("20") for entry in read_rows().values())


def test_the_index_has_every_row_and_every_name() -> None:
    """What picks names out of the files' text, against the parser."""
    found = [(row.name, row.also) for text in texts().values() for row in listed(text)]
    assert sorted(found) == sorted((entry.name, entry.also) for entry in whole_catalogue())


def test_a_row_that_is_asked_for_is_the_row_of_the_whole() -> None:
    catalogue = loader.model_catalogue()
    for entry in whole_catalogue()[::9]:
        assert catalogue.find(entry.name).entry == entry


@pytest.mark.process
def test_only_the_row_that_is_asked_for_is_parsed_and_nothing_stays() -> None:
    """All rows take a second to parse, and megabytes to keep; a daemon asks for a few of them, once."""
    started = time.process_time()
    loader.model_catalogue().find("Qwen/Qwen3-32B")
    assert time.process_time() - started < 0.5
    script = (
        "import gc\n"
        "from llm_serving_exporter.facts import loader\n"
        "from llm_serving_exporter.facts.models import ListedModel, ModelEntry\n"
        "from llm_serving_exporter.model.target import ModelSettings\n"
        "loader.model_facts(ModelSettings(name='Qwen/Qwen3-32B'))\n"
        "gc.collect()\n"
        "assert not [kept for kept in gc.get_objects() if isinstance(kept, (ListedModel, ModelEntry))]\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_SECONDS)


def _small() -> dict[str, object]:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}
    row = {"name": "A-7B", "also": ["A-7B-chat"], "source": "x", "config": config}
    return {
        "sources": {"x": {"title": "somewhere", "date": "2026-01-31"}},
        "model": [row, {**row, "name": "B-7B", "also": []}],
    }


def _changed(**changes: object) -> dict[str, object]:
    document = _small()
    row = document["model"][0]
    for key, value in changes.items():
        if value is None:
            del row[key]
        else:
            row[key] = value
    return document


@check_rows(
    ("document", "message"),
    [
        ({}, "needs \\[sources\\] and \\[\\[model\\]\\] rows"),
        ({"sources": {}, "model": []}, "needs \\[sources\\] and"),
        ({"sources": {}, "model": [7]}, "model 1: needs a name"),
        (_changed(name=None), "model 1: needs a name"),
        (_changed(config=None), "A-7B: keys are missing or not known: config"),
        (_changed(base=7), "A-7B: base is not the name of a row"),
        (_changed(base="C"), "A-7B: base 'C' is no row of this catalogue"),
        (_changed(base="A-7B"), "A-7B: base leads over more than 4 rows"),
        (_changed(total=7), "A-7B: keys are missing or not known: total"),
        (_changed(source="hearsay"), "A-7B: source 'hearsay' is not in"),
        (_changed(source=["mlc"]), "A-7B: source \\['mlc'\\] is not in"),
        (_changed(config=[1]), "A-7B: config is not a table"),
        (_changed(also="x"), "A-7B: also is not a list of texts"),
        (_changed(also=["B 7B"]), "B-7B: 'B-7B' is already A-7B's"),
        (_changed(also=["Läma"]), "A-7B: 'Läma' is no name"),
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


def test_a_checkpoint_has_the_fields_of_its_base_and_formats_of_its_own() -> None:
    found = _small()
    found["model"].append(
        {"name": "org/A-7B-FP8", "source": "x", "base": "A-7B", "quantization": {"quant_method": "fp8"}}
    )
    entry = parse(found)[2]
    assert entry.config == {**parse(_small())[0].config, "quantization_config": {"quant_method": "fp8"}}


# NVIDIA's FP4 keeps other layers in bf16 than another's, and its KV cache in FP8: what its name alone would not say
@check_rows(
    ("name", "formats", "kv"),
    [
        ("nvidia/DeepSeek-V3.1-NVFP4", {"nvfp4", "bf16"}, "fp8_e4m3"),
        ("nvidia/Kimi-K2.5-NVFP4", {"nvfp4", "bf16"}, "fp8_e4m3"),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", {"fp8", "bf16"}, "fp8_e4m3"),
        ("Qwen/Qwen3-32B-FP8", {"fp8_block", "bf16"}, "bf16"),
        ("openai/gpt-oss-120b", {"mxfp4", "bf16"}, "bf16"),
        ("nvidia/Qwen3.6-27B-NVFP4", {"nvfp4_w4a16", "fp8", "bf16"}, "fp8_e4m3"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", {"int4_g128_zp", "bf16"}, "bf16"),
    ],
)
def test_a_quantised_checkpoint_has_formats_of_its_own(name: str, formats: set[str], kv: str) -> None:
    facts = loader.model_facts(ModelSettings(name=name))
    assert {group.format.name for group in facts.groups} == formats
    assert facts.kv_format == kv
    assert facts.notes == ()


# --- A user's own models: files and folders of them, what is refused and how ---


CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 100, "tie_word_embeddings": False,
}  # fmt: skip
ROW = (
    "[[model]]\nname = 'house-7b'\nalso = ['chat-prod']\nconfig = { model_type = 'llama', hidden_size = 64, num_hidden_layers = 2, "
    "num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 128, vocab_size = 100, tie_word_embeddings = false }\n"
)


def _folder(at: Path, config: dict[str, object] = CONFIG) -> None:
    at.mkdir(parents=True)
    (at / "config.json").write_text(json.dumps(config))


def _origin(path: Path, name: str, served: ServedModel | None = None) -> str:
    return loader.model_facts(
        ModelSettings(name=name) if served is None else ModelSettings(), served, None, str(path)
    ).origin


def test_a_file_of_rows(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(ROW)
    assert _origin(file, "house-7b").startswith(f"{file}: house-7b; weights assumed bf16 (its row states no format)")
    assert _origin(file, "acme/House-7B-Instruct").startswith(f"{file}: house-7b")
    # a served alias
    assert _origin(file, "", ServedModel("chat-prod")).startswith(f"{file}: house-7b")


def test_a_folder_of_files_of_each_kind(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(ROW)
    _folder(tmp_path / "deep-9b")
    (tmp_path / "flat-3b.json").write_text(json.dumps(CONFIG))
    (tmp_path / "README.md").write_text("not a model")
    hub = tmp_path / "models--acme--hub-5b"
    _folder(hub / "snapshots" / "0123abc")
    assert {entry.name for entry in loader.own_models(str(tmp_path))} == {
        "house-7b",
        "deep-9b",
        "flat-3b",
        "acme/hub-5b",
    }
    for name in ("house-7b", "deep-9b", "flat-3b", "hub-5b", "acme/hub-5b"):
        assert _origin(tmp_path, name).startswith(str(tmp_path))


def test_one_config_json_and_its_quantisation(tmp_path: Path) -> None:
    _folder(tmp_path / "small-1b")
    exported = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "small-1b" / "hf_quant_config.json").write_text(json.dumps(exported))
    for place in (tmp_path / "small-1b", tmp_path / "small-1b" / "config.json"):
        by_name = loader.model_facts(ModelSettings(name="small-1b"), own=str(place))
        by_file = loader.model_facts(ModelSettings(config=str(tmp_path / "small-1b")))
        assert (by_name.groups, by_name.kv_format) == (by_file.groups, by_file.kv_format)
        assert by_name.kv_format == "fp8_e4m3"


def test_they_go_before_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(ROW.replace("house-7b", "Qwen3-32B"))
    found = loader.model_facts(ModelSettings(name="Qwen/Qwen3-32B"), own=str(tmp_path))
    assert found.geometry.parameters_total < 1_000_000
    assert _origin(tmp_path, "Qwen/Qwen3-8B").startswith("built-in catalogue: Qwen3-8B")


@check_rows(
    ("text", "message"),
    [
        ("[[model]\n", "is no TOML: "),
        ("", r"mine.toml: needs \[\[model\]\] rows"),
        ("[[model]]\nname = 'x-7b'\n", "mine.toml: x-7b: keys are missing or not known: config"),
        (ROW.replace("hidden_size = 64, ", ""), "mine.toml: house-7b: config.json .llama.: hidden_size is missing"),
        (
            ROW.replace("'llama'", "'lama9'"),
            "mine.toml: house-7b: config.json: model_type is 'lama9', which no formula here covers",
        ),
        (
            ROW + "quantization = { quant_method = 'magic' }\n",
            "mine.toml: house-7b: quantization_config: quant_method is 'magic'",
        ),
        (ROW + "speed = 7\n", "mine.toml: house-7b: keys are missing or not known: speed"),
        (ROW + ROW.replace("house-7b", "other-7b"), "mine.toml: other-7b: 'chat-prod' is already house-7b's"),
    ],
)
def test_own_models_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(FactsError, match=message) as caught:
        loader.own_models(str(tmp_path / "mine.toml"))
    assert caught.value.fix


def test_a_place_without_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match="holds no model"):
        loader.own_models(str(tmp_path))
    with pytest.raises(FactsError, match="cannot be read"):
        loader.own_models(str(tmp_path / "none.toml"))
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(FactsError, match="is not valid JSON"):
        loader.own_models(str(tmp_path))


def test_one_name_in_two_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(ROW)
    (tmp_path / "b.toml").write_text(ROW)
    with pytest.raises(FactsError, match="'house-7b' stands there twice"):
        loader.own_models(str(tmp_path))

"""A user's own models: files and folders of them, what is refused and how, and that they go before the built-in ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.model.target import ModelSettings, ServedModel
from tests.support.rows import check_rows

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
def test_refused(tmp_path: Path, text: str, message: str) -> None:
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

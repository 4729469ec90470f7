"""The `model` block of a target, GPU names and formats: what is taken, and from where."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.discovery.sections import Discovery
from llm_serving_exporter.facts import loader
from llm_serving_exporter.model.target import ModelSettings
from tests.support.builders.configuration import load_text, problems_of
from tests.support.rows import check_rows


def model(folder: Path, text: str) -> ModelSettings:
    config = load_text(folder, f"targets: [{{url: 'http://a:8000', model: {text}}}]\n")
    return config.targets[0].model


@check_rows(
    ("text", "expected"),
    [
        ("Llama-3.1-8B", ModelSettings(name="Llama-3.1-8B")),
        ("meta-llama/Llama-3.1-8B", ModelSettings(name="meta-llama/Llama-3.1-8B")),
        ("/models/a", ModelSettings(config="/models/a")),
        ("{config: /models/a/config.json}", ModelSettings(config="/models/a/config.json")),
        (
            "{name: a, weight_format: FP8, kv_cache_dtype: fp8-e5m2}",
            ModelSettings(name="a", weight_format="FP8", kv_cache_dtype="fp8-e5m2"),
        ),
        ("{weight_format: q4_k_m, state_dtype: auto}", ModelSettings(weight_format="q4_k_m", state_dtype="auto")),
        ("{kv_cache_dtype: auto, state_dtype: float32}", ModelSettings(kv_cache_dtype="auto", state_dtype="float32")),
        ("{}", ModelSettings()),
    ],
)  # fmt: skip
def test_a_block_or_a_text_alone(tmp_path: Path, text: str, expected: ModelSettings) -> None:
    assert model(tmp_path, text) == expected


@check_rows("text", ["./m", "../m", "{config: m}", "{config: ./m}"])
def test_relative_paths_are_of_the_file(tmp_path: Path, text: str) -> None:
    found = model(tmp_path, text).config
    assert found is not None
    assert Path(found).resolve() in ((tmp_path / "m").resolve(), (tmp_path / "../m").resolve())


def test_defaults_and_the_more_specific_target(tmp_path: Path) -> None:
    text = (
        "target_defaults: {gpu_model: H100 SXM, model: {name: a, weight_format: fp8}}\n"
        "targets: ['http://a:8000', {url: 'http://b:8000', gpu_model: L40S, model: {name: b}}]\n"
    )
    first, second = load_text(tmp_path, text).targets
    assert (first.gpu_model, first.model) == ("H100 SXM", ModelSettings(name="a", weight_format="fp8"))
    assert second.gpu_model == "L40S"
    assert second.model.name == "b"


@pytest.mark.parametrize("text", ["8", "1.5", "true"])
def test_formats_are_texts(tmp_path: Path, text: str) -> None:
    for key in ("weight_format", "kv_cache_dtype", "state_dtype"):
        (problem,) = problems_of(tmp_path, f"targets: [{{url: 'http://a:8000', model: {{{key}: {text}}}}}]\n")
        assert problem.startswith(f"targets[0].model.{key}: ")


def test_state_dtypes_that_are_taken_hold_at_the_lookup() -> None:
    """ "auto" is the config's own, else the model's dtype, as vLLM has it."""

    def bytes_of(name: str, dtype: str | None) -> float:
        return loader.model_facts(ModelSettings(name=name, state_dtype=dtype)).state_bytes_per_element

    assert [bytes_of("Jamba-v0.1", dtype) for dtype in (None, "auto", "AUTO", "BF16", "float32")] == [
        4.0,
        2.0,
        2.0,
        2.0,
        4.0,
    ]


def test_a_gpu_that_a_discovered_target_names_and_nobody_knows_costs_no_target(tmp_path: Path) -> None:
    (tmp_path / "sd.yml").write_text("- {targets: ['a:1', 'b:1'], labels: {gpu_model: 'Future GPU 9000'}}\n")
    config = load_text(tmp_path, "file_sd: [{files: [sd.yml]}]\n")
    found = Discovery(config.discovery).targets((), ())
    assert [target.gpu_model for target in found.targets] == ["Future GPU 9000"] * 2
    assert list(found.problems) == []


def test_what_names_nothing_reads_no_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader.gpu_catalogue.cache_clear()
    monkeypatch.setattr(loader, "model_catalogue", None)
    load_text(tmp_path, "targets: ['http://a:8000']\n")
    assert loader.gpu_catalogue.cache_info().currsize == 0

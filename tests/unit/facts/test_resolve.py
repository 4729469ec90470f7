"""The order of belief: configuration, server, files, catalogue; what is said of each and what is refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.models import ModelEntry, ModelFiles
from llm_serving_exporter.facts.resolve import resolve
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.target import ModelSettings, ServedModel
from tests.support.models.modelfolders import FP8, LLAMA, MODELOPT_FP8, folder, index
from tests.support.rows import check_rows

NOTHING = ModelSettings()
# 2 x 4096 x 256 embeddings, 8 layers of 2 x 256 x 256 + 2 x 64 x 256 attention, 3 x 256 x 1024 MLP and 2 norms of 256, 1 norm
LINEAR, EMBEDDINGS, VECTORS = 8 * (2 * 65_536 + 2 * 16_384 + 786_432), 2 * 1_048_576, 17 * 256
BF16_BYTES = 2 * (LINEAR + EMBEDDINGS + VECTORS)
PATH = "/models/small/config.json"


def found(config: Mapping[str, Any] | None = None, checkpoint: int | None = None, **more: Any) -> ModelFiles:
    """Files of the small Llama, with more fields."""
    return ModelFiles(PATH, {**LLAMA, **(config or {})}, more.get("hf_quant_config"), checkpoint)


def by_name(served: ServedModel | None = None, settings: ModelSettings = NOTHING) -> ModelFacts:
    return resolve(settings, served, None, loader.model_catalogue)


def by_files(files: ModelFiles, served: ServedModel | None = None, settings: ModelSettings = NOTHING) -> ModelFacts:
    return resolve(settings, served, files, _never)


def _never() -> Sequence[ModelEntry]:
    raise AssertionError("the catalogue is not needed where there are files")


def formats_of(facts: ModelFacts) -> set[str]:
    return {group.format.name for group in facts.groups}


# where the geometry comes from


def test_files_go_before_the_catalogue() -> None:
    facts = by_files(found(), ServedModel("Llama-3.1-8B", kv_cache_dtype="auto"))
    assert facts.geometry.parameters_total == LINEAR + EMBEDDINGS + VECTORS
    assert facts.weight_bytes == BF16_BYTES
    assert facts.kv_bytes_per_token == 8 * 2 * 2 * 32 * 2
    assert facts.origin == f"{PATH}; weights bf16 as the file says; KV cache bf16 as the server says"
    assert (facts.name, facts.formats_assumed, facts.estimate_sound, facts.notes) == ("Llama-3.1-8B", False, True, ())


def test_the_catalogue_by_served_name() -> None:
    facts = by_name(ServedModel("meta-llama/Llama-3.1-8B-Instruct", kv_cache_dtype="fp8_e4m3"))
    assert facts.geometry.parameters_total == 8_030_261_248
    assert facts.kv_bytes_per_token == 65_536
    assert facts.origin == (
        "built-in catalogue: Llama-3.1-8B; weights assumed bf16 (its row states no format); KV cache fp8_e4m3 as the server says"
    )
    assert facts.name == "meta-llama/Llama-3.1-8B-Instruct"
    assert facts.formats_assumed


def test_a_configured_name_goes_before_what_the_server_says() -> None:
    served = ServedModel(
        "chat", root="/models/acme-chat-v7", dtype="torch.bfloat16", quantization="", kv_cache_dtype="auto"
    )
    facts = by_name(served, ModelSettings(name="qwen2.5:7b"))
    assert facts.geometry.parameters_total == 7_615_616_512
    assert (facts.name, facts.formats_assumed) == ("chat", False)


def test_what_was_loaded_goes_before_the_name_it_is_served_by() -> None:
    assert by_name(ServedModel("Llama-3.1-8B", root="Qwen/Qwen3-8B")).origin.startswith("built-in catalogue: Qwen3-8B")
    assert by_name(ServedModel("Llama-3.1-8B", root="/models/Qwen3-8B")).origin.startswith(
        "built-in catalogue: Qwen3-8B"
    )


@check_rows(
    "root",
    [
        "Qwen/Qwen3-32B", "/models/Qwen3-32B", "/models/Qwen/Qwen3-32B/", "/hub/models--Qwen--Qwen3-32B/snapshots/9216db5781bf",
        "qwen3:32b",
    ],
)  # fmt: skip
def test_an_alias_says_nothing_of_what_was_loaded(root: str) -> None:
    assert by_name(ServedModel("chat-prod", root=root)).origin.startswith("built-in catalogue: Qwen3-32B;")
    # an alias that happens to be another model's name is no word about this one
    assert by_name(ServedModel("Qwen3-8B", root=root)).origin.startswith("built-in catalogue: Qwen3-32B;")


def test_what_is_only_assumed_of_a_quantised_name_is_said() -> None:
    """NVIDIA's FP4 of a model that has no row of its own: its attention may be bf16, its KV cache FP8."""
    facts = loader.model_facts(ModelSettings(name="acme/Qwen3-32B-NVFP4"))
    assert facts.formats_assumed
    (note,) = facts.notes
    assert note.startswith("nvfp4 is assumed of every linear layer but lm_head, because the name says it")
    assert "a KV cache in another format than bf16" in note
    stated = loader.model_facts(ModelSettings(name="acme/Qwen3-32B-NVFP4", kv_cache_dtype="fp8"))
    assert "KV cache" not in stated.notes[0]
    for said in ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8", "Qwen3-32B-Q4_K_M.gguf"):
        assert loader.model_facts(ModelSettings(name=said)).notes == ()
    assert loader.model_facts(ModelSettings(name="acme/Qwen3-32B-NVFP4", weight_format="nvfp4")).notes == ()


def test_the_served_name_counts_where_the_loaded_path_says_nothing() -> None:
    for root in ("/model", "/mnt/weights/", None, ""):
        assert by_name(ServedModel("Llama-3.1-8B", root=root)).geometry.parameters_total == 8_030_261_248


def test_a_label_on_another_model_of_the_hub_does_not_count() -> None:
    with pytest.raises(FactsError, match=r"'acme/llama-8b-pruned-4b' is not in the built-in catalogue"):
        by_name(ServedModel("Llama-3.1-8B", root="acme/llama-8b-pruned-4b"))


@check_rows(
    ("settings", "served", "what"),
    [
        (NOTHING, ServedModel("acme-chat", root="/models/x"), "'/models/x' is not in the built-in catalogue"),
        (NOTHING, ServedModel("acme-chat"), "'acme-chat' is not in"),
        (NOTHING, ServedModel(""), "the server does not say which model it serves"),
        (NOTHING, None, "the server does not say"),
        (ModelSettings(name="lama"), ServedModel("Llama-3.1-8B"), "'lama' is not in"),
    ],
)
def test_unknown_models_are_refused_with_what_to_do(
    settings: ModelSettings, served: ServedModel | None, what: str
) -> None:
    with pytest.raises(FactsError) as caught:
        by_name(served, settings)
    assert caught.value.reason == "model_unknown"
    assert what in str(caught.value)
    assert "set targets[].model.config to its config.json" in str(caught.value)


def test_what_the_loader_could_not_read_is_said_with_it() -> None:
    note = "'/models/x/config.json' is not valid JSON"
    with pytest.raises(FactsError, match=r"'/models/x/config\.json' is not valid JSON"):
        resolve(NOTHING, ServedModel("acme", root="/models/x"), None, loader.model_catalogue, (note,))
    assert resolve(NOTHING, ServedModel("Qwen3-8B"), None, loader.model_catalogue, (note,)).notes == (note,)


def test_an_unknown_architecture_is_never_guessed_even_where_the_catalogue_knows_the_name() -> None:
    with pytest.raises(FactsError, match=f"{PATH}: config.json: model_type is 'hyena'") as caught:
        by_files(found({"model_type": "hyena"}), ServedModel("Llama-3.1-8B"))
    assert caught.value.reason == "architecture_unknown"


def test_faults_name_the_file_and_the_key() -> None:
    with pytest.raises(FactsError, match=rf"^{PATH}: config.json \(llama\): hidden_size is missing"):
        by_files(found({"hidden_size": None}))
    with pytest.raises(FactsError, match=rf"^{PATH}: quantization_config: quant_method is 'magic'"):
        by_files(found({"quantization_config": {"quant_method": "magic"}}))


@pytest.mark.parametrize("key", ["model_type", "hidden_size"])
def test_a_fault_quotes_a_file_only_so_far(key: str) -> None:
    """A config.json may hold 16 MiB of anything, and the fault goes to the log, the landing page and the terminal."""
    with pytest.raises(FactsError, match=f"^{PATH}: config.json.*{key} is") as caught:
        by_files(found({key: "x" * 1_000_000}))
    assert len(str(caught.value)) < 6000


@check_rows(
    ("path", "name"),
    [
        (PATH, "small"), ("config.json", "config"), ("./config.json", "config"), ("/config.json", "config"), ("/a/mid.json", "mid"),
        ("/hub/models--acme--Small/snapshots/0e9e/config.json", "acme/Small"), ("a/b/../config.json", "b"),
    ],
)  # fmt: skip
def test_a_model_that_nobody_serves_is_named_by_its_place(path: str, name: str) -> None:
    assert by_files(ModelFiles(path, LLAMA)).name == name


# weight formats


def test_a_configured_format_wins() -> None:
    served = ServedModel("m", quantization="awq", dtype="float16")
    facts = by_files(found(), served, ModelSettings(weight_format="fp8"))
    assert facts.weight_bytes == LINEAR + 2 * (EMBEDDINGS + VECTORS)
    assert "weights bf16, fp8 as configured" in facts.origin
    assert not by_files(found(), served, ModelSettings(weight_format="fp8", kv_cache_dtype="fp8")).formats_assumed
    assert formats_of(by_files(found({"quantization_config": FP8}), None, ModelSettings(weight_format="bf16"))) == {
        "bf16"
    }


def test_a_configured_format_of_the_checkpoints_own_kind_leaves_the_exact_one() -> None:
    facts = by_files(found({"quantization_config": FP8}), None, ModelSettings(weight_format="fp8"))
    assert formats_of(facts) == {"bf16", "fp8_block"}


def test_an_unknown_configured_format_is_refused() -> None:
    with pytest.raises(FactsError, match="weight format 'float9' is not known; known are"):
        by_files(found(), None, ModelSettings(weight_format="float9"))


def test_quantised_on_loading_as_the_server_says() -> None:
    facts = by_files(found(), ServedModel("m", quantization="fp8", kv_cache_dtype="auto"))
    assert facts.weight_bytes == LINEAR + 2 * (EMBEDDINGS + VECTORS)
    assert "as the server says" in facts.origin
    assert facts.kv_format == "bf16"


def test_the_files_own_quantisation_is_more_exact_than_the_engines_word() -> None:
    for word in ("fp8", "compressed-tensors", None, ""):
        facts = by_files(found({"quantization_config": FP8}), ServedModel("m", quantization=word))
        assert formats_of(facts) == {"bf16", "fp8_block"}


def test_hf_quant_config_counts() -> None:
    facts = by_files(found(hf_quant_config=MODELOPT_FP8), ServedModel("m", quantization="modelopt"))
    assert formats_of(facts) == {"bf16", "fp8"}


def test_dtype_of_the_server_goes_before_the_files() -> None:
    facts = by_files(found(), ServedModel("m", dtype="torch.float32", quantization="", kv_cache_dtype="auto"))
    assert facts.weight_bytes == 2 * BF16_BYTES
    assert (facts.kv_format, facts.kv_bytes_per_element) == ("fp32", 4)
    for word in ("auto", "strange"):
        assert by_files(found(), ServedModel("m", dtype=word)).weight_bytes == BF16_BYTES


@check_rows(
    ("name", "formats", "how"),
    [
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", {"bf16", "fp8"}, "as its name says"),
        ("Llama-3.1-8B-Instruct-Q4_K_M.gguf", {"gguf_q4_k_m"}, "as its name says"),
        ("Llama-3.1-8B-Instruct-AWQ", {"bf16", "int4_g128_zp"}, "as its name says"),
        ("gpt-oss-20b", {"bf16", "mxfp4"}, "as it is published"),
        ("gpt-oss-20b-MXFP4", {"bf16", "mxfp4"}, "as its name says"),
        ("unsloth/gpt-oss-20b-BF16", {"bf16"}, "as its name says"),
        ("DeepSeek-R1", {"bf16", "fp8_block"}, "as it is published"),
        ("Llama-2-7b-chat-hf", {"fp16"}, "as it is published"),
    ],
)
def test_formats_of_the_catalogue(name: str, formats: set[str], how: str) -> None:
    facts = by_name(ServedModel(name))
    assert formats_of(facts) == formats
    assert how in facts.origin


def test_a_name_of_a_natively_quantised_model_does_not_widen_its_quantisation() -> None:
    """gpt-oss keeps attention in bf16: "-MXFP4" in its name says nothing else."""
    assert by_name(ServedModel("gpt-oss-20b-MXFP4")).weight_bytes == by_name(ServedModel("gpt-oss-20b")).weight_bytes


@pytest.mark.parametrize("name", ["Llama-3.1-8B-quantized", "Llama-3.1-8B-Instruct-GGUF", "gpt-oss-20b-GGUF"])
def test_a_name_that_leaves_the_format_open_is_refused_unless_somebody_says_it(name: str) -> None:
    with pytest.raises(FactsError, match="does not tell how its weights are stored; set targets") as caught:
        by_name(ServedModel(name))
    assert caught.value.reason == "model_unknown"
    assert by_name(ServedModel(name), ModelSettings(weight_format="int8")).weight_bytes > 0


def test_the_engines_word_for_a_model_of_the_catalogue() -> None:
    def served(quantization: str, name: str = "Llama-3.1-8B") -> set[str]:
        return formats_of(by_name(ServedModel(name, quantization=quantization)))

    assert served("fp8") == {"bf16", "fp8"}
    assert served("awq_marlin") == {"bf16", "int4_g128_zp"}
    assert served("compressed-tensors", "Llama-3.1-8B-quantized.w8a8") == {"bf16", "int8"}
    assert served("gptq_marlin", "Llama-3.1-8B-GPTQ-Int8") == {"bf16", "int8_g128_zp_w8a16"}
    # the engine is believed before a name
    assert served("fp8", "Llama-3.1-8B-AWQ") == {"bf16", "fp8"}
    assert served("", "Llama-3.1-8B-FP8") == {"bf16"}
    assert served("gpt_oss_mxfp4", "gpt-oss-20b") == {"bf16", "mxfp4"}


@check_rows("word", ["compressed-tensors", "modelopt", "quark", "gguf", "torchao", "x" * 5000])
def test_a_word_that_leaves_the_bits_open_is_refused(word: str) -> None:
    for facts in (
        lambda: by_name(ServedModel("Llama-3.1-8B", quantization=word)),
        lambda: by_files(found(), ServedModel("m", quantization=word)),
    ):
        with pytest.raises(
            FactsError, match=r"leaves their bits open; set targets\[\]\.model\.weight_format"
        ) as caught:
            facts()
        assert len(str(caught.value)) < 400


# KV cache and state


def test_kv_cache_dtype() -> None:
    hint = found({"quantization_config": {**FP8, "kv_cache_scheme": {"type": "float", "num_bits": 8}}})

    def kv(said: str | None, configured: str | None = None, files: ModelFiles = hint) -> tuple[str, float, bool]:
        facts = by_files(files, ServedModel("m", kv_cache_dtype=said), ModelSettings(kv_cache_dtype=configured))
        return facts.kv_format, facts.kv_bytes_per_element, facts.formats_assumed

    assert kv("fp8_e5m2", "int8") == ("int8", 1, False)
    assert kv("fp8_e5m2") == ("fp8_e5m2", 1, False)
    assert kv("auto") == ("bf16", 2, False)
    # nobody says it: what the checkpoint was calibrated for, else the model's
    assert kv(None) == ("fp8_e4m3", 1, True)
    assert kv(None, files=found()) == ("bf16", 2, True)
    # one fp32 scale for each head of 32
    assert kv("fp8_per_token_head") == ("fp8_per_token_head", 1 + 4 / 32, False)


def test_auto_is_what_the_checkpoint_was_calibrated_for_where_the_engine_takes_that() -> None:
    scheme = {"kv_cache_scheme": {"type": "float", "num_bits": 8, "dynamic": False, "strategy": "tensor"}}
    compressed = found({"quantization_config": {**FP8, "quant_method": "compressed-tensors", **scheme}})

    def kv(files: ModelFiles, *methods: str, said: str = "auto") -> tuple[str, float, bool]:
        facts = by_files(files, ServedModel("m", kv_cache_dtype=said, kv_as_calibrated=frozenset(methods)))
        return facts.kv_format, facts.kv_bytes_per_element, facts.formats_assumed

    assert kv(compressed, "compressed-tensors") == ("fp8_e4m3", 1, False)
    assert kv(compressed, "modelopt") == ("bf16", 2, False)
    assert kv(compressed) == ("bf16", 2, False)
    # what the server says is a format, and a checkpoint that says none
    assert kv(compressed, "compressed-tensors", said="bfloat16") == ("bf16", 2, False)
    assert kv(found({"quantization_config": FP8}), "compressed-tensors") == ("bf16", 2, False)


@pytest.mark.parametrize("name", ["nvidia/GLM-5.2-NVFP4", "nvidia/Kimi-K2.5-NVFP4"])
def test_auto_of_nvidias_own_checkpoints(name: str) -> None:
    # their config.json, as they are published: kv_cache_scheme of 8 bits
    def kv(*methods: str) -> str:
        return by_name(ServedModel(name, kv_cache_dtype="auto", kv_as_calibrated=frozenset(methods))).kv_format

    assert (kv(), kv("modelopt"), kv("compressed-tensors")) == ("bf16", "fp8_e4m3", "bf16")
    # SGLang takes FP8 alone (srt/mem_cache/kv_cache_dtype.py)
    assert (kv("modelopt/fp8_e4m3"), kv("modelopt/nvfp4")) == ("fp8_e4m3", "bf16")


@check_rows(
    ("said", "format_bytes"), [("auto", 656 / 576), ("fp8", 656 / 576), ("fp8_e4m3", 656 / 576), ("bfloat16", 2)]
)
def test_deepseek_v4_has_a_kv_layout_of_its_own(said: str, format_bytes: float) -> None:
    # 448 elements in fp8, 64 in bf16 and scales: 584 bytes of 512 (SGLang srt/mem_cache/deepseek_v4_memory_pool.py)
    served = ServedModel("DeepSeek-V4-Pro", kv_cache_dtype=said, kv_as_calibrated=frozenset({"deepseek_v4"}))
    found = by_name(served).kv_bytes_per_element
    assert found == pytest.approx(format_bytes)
    assert found * 512 == pytest.approx(584, abs=1) or said == "bfloat16"
    # of an engine that is not known to do so, what it says
    assert by_name(ServedModel("DeepSeek-V4-Pro", kv_cache_dtype="auto")).kv_bytes_per_element == 2


def test_a_kv_cache_dtype_that_is_not_known_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        FactsError, match=r"the server's KV cache dtype 'turbo' is not known.*set targets\[\]\.model\.kv_cache_dtype"
    ):
        by_name(ServedModel("Llama-3.1-8B", kv_cache_dtype="turbo"))
    with pytest.raises(FactsError, match=r"^KV cache dtype 'turbo' is not known"):
        by_name(ServedModel("Llama-3.1-8B"), ModelSettings(kv_cache_dtype="turbo"))


def test_a_gguf_file_keeps_its_kv_cache_in_16_bits() -> None:
    assert by_name(ServedModel("Llama-3.1-8B-Q4_K_M.gguf")).kv_bytes_per_token == 131_072


def test_mla_keeps_one_latent() -> None:
    assert by_name(ServedModel("DeepSeek-R1", kv_cache_dtype="auto")).kv_bytes_per_token == 70_272


def test_an_embedder_has_no_kv_cache() -> None:
    facts = by_name(ServedModel("BAAI/bge-m3", dtype="float16", quantization=""))
    assert facts.origin == "built-in catalogue: bge-m3; weights fp16 as the server says"
    assert (facts.kv_bytes_per_token, facts.formats_assumed) == (0, False)


def test_state_dtype() -> None:
    """Qwen3-Next: 36 layers of 32 x 128 x 128 elements and 8192 x 3 of convolution (facts B.9: 77.3 MB in float32, 39.5 in bf16)."""

    def state(name: str, said: str | None, configured: str | None = None) -> float:
        facts = by_name(ServedModel(name, state_dtype=said), ModelSettings(state_dtype=configured))
        return facts.state_bytes_per_element

    assert by_name(ServedModel("Qwen3-Next-80B-A3B")).state_bytes_per_sequence() == 36 * (524_288 * 4 + 24_576 * 2)
    assert state("Qwen3-Next-80B-A3B", None) == 4
    assert state("Qwen3-Next-80B-A3B", "auto") == 2
    assert state("Qwen3-Next-80B-A3B", "float32") == 4
    assert state("Qwen3-Next-80B-A3B", "float32", "bf16") == 2
    # its config says float32, which an engine takes for "auto"
    assert state("Nemotron-3-Nano-30B-A3B", "auto") == 4
    assert state("Nemotron-3-Nano-30B-A3B", "strange") == 4
    # vLLM's kda_state_dtype, as its mamba_utils.py has it: auto is float32 there, and may be said otherwise
    assert state("Kimi-Linear-48B-A3B", "auto") == 4
    assert state("Kimi-Linear-48B-A3B", "bfloat16") == 2


# what the checkpoint holds


def test_a_checkpoint_of_the_expected_size_is_believed_silently() -> None:
    for size in (BF16_BYTES, int(BF16_BYTES * 1.015)):
        facts = by_files(found(checkpoint=size))
        assert (facts.checkpoint_bytes, facts.notes) == (size, ())


def test_a_checkpoint_of_another_size_is_believed_and_noted() -> None:
    facts = by_files(found(checkpoint=2 * BF16_BYTES))
    assert facts.checkpoint_bytes == 2 * BF16_BYTES
    assert facts.weight_bytes == BF16_BYTES
    (note,) = facts.notes
    assert note.startswith(
        "the checkpoint holds 0.04 GB, its sizes and formats make 0.02 GB: if the checkpoint holds nothing else"
    )


def test_what_is_not_counted_explains_a_larger_checkpoint() -> None:
    files = found({"vision_config": {"depth": 32}}, checkpoint=2 * BF16_BYTES)
    assert by_files(files).notes[0].endswith("what is not counted is in it (vision tower)")
    smaller = found({"vision_config": {"depth": 32}}, checkpoint=BF16_BYTES // 2)
    assert "vision tower" not in by_files(smaller).notes[0]


@check_rows(
    ("config", "served", "settings", "kept"),
    [
        ({}, ServedModel("m", dtype="bfloat16"), NOTHING, True),
        ({}, ServedModel("m", dtype="float16"), NOTHING, True),
        ({}, ServedModel("m", dtype="float32"), NOTHING, False),
        ({}, ServedModel("m", quantization="fp8"), NOTHING, False),
        ({}, None, ModelSettings(weight_format="int4"), False),
        ({"torch_dtype": "float32"}, None, NOTHING, False),
        ({"torch_dtype": "float32"}, ServedModel("m", dtype="float32"), NOTHING, True),
        ({"quantization_config": FP8}, ServedModel("m", quantization="fp8"), NOTHING, True),
        ({"quantization_config": FP8}, None, ModelSettings(weight_format="bf16"), False),
    ],
)
def test_stored_bytes_count_only_where_weights_are_served_as_stored(
    config: dict[str, Any], served: ServedModel | None, settings: ModelSettings, kept: bool
) -> None:
    facts = by_files(found(config, checkpoint=7_000_000), served, settings)
    assert facts.checkpoint_bytes == (7_000_000 if kept else None)


# all of it, from files on disk


def test_from_a_folder_to_facts(tmp_path: Path) -> None:
    place = folder(tmp_path / "small", index=index(BF16_BYTES))
    facts = loader.model_facts(loader.given(str(place)))
    assert (facts.name, facts.weight_bytes, facts.checkpoint_bytes) == ("small", BF16_BYTES, BF16_BYTES)
    served = loader.model_facts(NOTHING, ServedModel("chat", root=str(place)))
    assert (served.name, served.origin.partition(";")[0]) == ("chat", str(place / "config.json"))


def test_a_broken_folder_falls_back_to_the_catalogue_and_says_so(tmp_path: Path) -> None:
    place = folder(tmp_path / "Llama-3.1-8B")
    (place / "config.json").write_text("")
    facts = loader.model_facts(NOTHING, ServedModel("m", root=str(place)))
    assert facts.origin.startswith("built-in catalogue: Llama-3.1-8B")
    assert "is not valid JSON" in facts.notes[0]


# a server that states the size of what it loaded


def of_size(quantization: str | None, weight_bytes: int | None, dtype: str | None = None, **more: Any) -> ModelFacts:
    served = ServedModel("m", dtype=dtype, quantization=quantization, weight_bytes=weight_bytes)
    return by_files(found(**more), served)


PARAMETERS = LINEAR + EMBEDDINGS + VECTORS


def test_the_stated_size_says_the_bits_of_a_gguf_mix() -> None:
    # 4.8944 bits is the mean of Q4_K_M in Llama-3.1-8B; a small model has more of its weights in wider types
    stated = round(5.5 * PARAMETERS / 8)
    facts = of_size("q4_k_m", stated)
    assert round(facts.weight_bytes) == stated
    assert facts.checkpoint_bytes == stated
    assert facts.origin.startswith(f"{PATH}; weights gguf_q4_k_m as the server says, its size over the parameters")
    assert facts.notes == ()
    assert of_size("q4_k_m", None).weight_bytes == pytest.approx(4.8944 * PARAMETERS / 8)


def test_a_type_that_no_table_has_is_known_by_its_size() -> None:
    with pytest.raises(FactsError, match="leaves their bits open"):
        of_size("q9_new", None)
    facts = of_size("q9_new", PARAMETERS)
    assert (formats_of(facts), facts.weight_bytes) == ({"gguf_q9_new"}, PARAMETERS)


@pytest.mark.parametrize("stated", [PARAMETERS // 8 * 2, PARAMETERS * 8 // 8])
def test_a_size_that_is_not_of_these_weights_is_not_believed(stated: int) -> None:
    # 2 and 8 bits under a name that means 4.9
    facts = of_size("q4_k_m", stated)
    assert facts.weight_bytes == pytest.approx(4.8944 * PARAMETERS / 8)
    assert len(facts.notes) == 1
    assert "state the weight format" in facts.notes[0]


@pytest.mark.parametrize("stated", [1, 10**15])
def test_a_size_that_cannot_be_leaves_the_word(stated: int) -> None:
    with pytest.raises(FactsError, match="leaves their bits open"):
        of_size("q9_new", stated)


def test_a_plain_dtype_stays_what_it_is() -> None:
    # norms are kept in 4 bytes: a little more than 2 bytes a parameter
    facts = of_size("", 2 * PARAMETERS + 2 * VECTORS, "float16")
    assert (formats_of(facts), facts.weight_bytes) == ({"fp16"}, 2 * PARAMETERS)
    assert (facts.checkpoint_bytes, facts.notes) == (2 * PARAMETERS + 2 * VECTORS, ())


def test_a_configured_format_and_a_checkpoints_own_go_before_the_size() -> None:
    served = ServedModel("m", quantization="q4_k_m", weight_bytes=PARAMETERS)
    assert by_files(found(), served, ModelSettings(weight_format="q8_0")).weight_bytes == 8.5008 * PARAMETERS / 8
    own = found({"quantization_config": FP8})
    assert formats_of(by_files(own, served)) == formats_of(by_files(own, ServedModel("m"))) == {"bf16", "fp8_block"}

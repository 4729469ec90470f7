"""Which names mean which row of the model catalogue, which mean none, which are near, and what a name says of the weights."""

import re
import time
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.loader import model_facts
from llm_serving_exporter.facts.models import ModelEntry
from llm_serving_exporter.facts.names import Match, find, key, nearest
from llm_serving_exporter.model.target import ModelSettings
from tests.support.models.shapes import whole_catalogue
from tests.support.rows import check_rows

LLAMA, LLAMA_70B = "Llama-3.1-8B", "Llama-3.1-70B"

MEANT = [
    ("meta-llama/Llama-3.1-8B", LLAMA), ("meta-llama/Llama-3.1-8B-Instruct", LLAMA), ("Meta-Llama-3.1-8B-Instruct", LLAMA),
    ("llama3.1:8b", LLAMA), ("llama3.1:8b-instruct", LLAMA), ("meta/llama-3.1-8b-instruct", LLAMA), ("Llama-3_1-8B", LLAMA),
    ("/models/Llama-3.1-8B-Instruct/", LLAMA), ("LLAMA 3.1 8B", LLAMA), ("meta-llama/Meta-Llama-3-8B", LLAMA), ("llama3:8b", LLAMA),
    ("NousResearch/Meta-Llama-3.1-8B-Instruct", LLAMA), ("meta-llama/Llama-3.3-70B-Instruct", LLAMA_70B), ("llama3.3:70b", LLAMA_70B),
    ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", LLAMA_70B), ("nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", LLAMA_70B),
    ("/home/llm/.cache/huggingface/hub/models--Qwen--Qwen3-32B/snapshots/9216db5781bf21249d130ec9da846c4624c16137", "Qwen3-32B"),
    ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B"), ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "Llama-4-Scout"),
    ("llama4:scout", "Llama-4-Scout"), ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
    ("mistralai/Mistral-Nemo-Instruct-2407", "Mistral-Nemo-12B"), ("mistral-nemo:12b", "Mistral-Nemo-12B"),
    ("mistralai/Mistral-Small-24B-Instruct-2501", "Mistral-Small-24B"),
    ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "Mistral-Small-3.1-24B"),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B"), ("mixtral:8x22b", "Mixtral-8x22B"),
    ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"), ("qwen2.5:7b", "Qwen2.5-7B"), ("Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen2.5-32B"),
    ("Qwen/QwQ-32B", "Qwen2.5-32B"), ("qwq:32b", "Qwen2.5-32B"), ("deepseek-r1:1.5b", "DeepSeek-R1-Distill-Qwen-1.5B"),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"), ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen3-235B-A22B"),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen3-Next-80B-A3B"), ("google/gemma-3-27b-it", "Gemma-3-27B"), ("gemma3:27b", "Gemma-3-27B"),
    ("microsoft/Phi-3-mini-4k-instruct", "Phi-3-mini-4k"), ("microsoft/Phi-3.5-MoE-instruct", "Phi-3.5-MoE"), ("phi4", "Phi-4"),
    ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3"), ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-V3"), ("deepseek-r1:671b", "DeepSeek-V3"),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", "DeepSeek-V2-Lite"), ("moonshotai/Kimi-K2-Instruct-0905", "Kimi-K2"),
    ("moonshotai/Kimi-K2-Thinking", "Kimi-K2-Thinking"), ("openai/gpt-oss-120b", "gpt-oss-120b"), ("gpt-oss:20b", "gpt-oss-20b"),
    ("ai21labs/AI21-Jamba-1.5-Mini", "Jamba-v0.1"), ("nvidia/Nemotron-H-56B-Base-8K", "Nemotron-H-56B"),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Nemotron-3-Nano-30B-A3B"), ("EleutherAI/gpt-j-6b", "GPT-J-6B"),
    ("BAAI/bge-m3", "bge-m3"), ("BAAI/bge-large-en-v1.5", "bge-large"), ("intfloat/e5-mistral-7b-instruct", "e5-mistral-7b"),
    ("nvidia/NV-Embed-v2", "NV-Embed-v2"), ("phi4:latest", "Phi-4"), ("bge-m3:latest", "bge-m3"), ("deepseek-v3:latest", "DeepSeek-V3"),
    ("deepseek-r1:70b", "Llama-3.1-70B"), ("gpt-oss-20b:latest", "gpt-oss-20b"),
    ("DeepSeek-R1-0528", "DeepSeek-V3"), ("Qwen/Qwen3-4B-Instruct-2507", "Qwen3-4B"), ("c4ai-command-r-plus-08-2024", "Command-R-plus"),
    ("Qwen_Qwen3-4B-Instruct-2507", "Qwen3-4B"), ("google_gemma-3-27b-it", "Gemma-3-27B"), ("kimi-k2:1t-cloud", "Kimi-K2"),
    ("CohereLabs/c4ai-command-r-08-2024", "c4ai-command-r-08-2024"), ("BAAI/bge-reranker-v2-m3", "bge-reranker-v2-m3"),
]  # fmt: skip
OTHERS = [
    "Llama-3.1-8B-Nemotron-Tulu", "Llama-3.1-8B-sql-lora", "sql-lora", "my-Llama-3.1-8B", "Llama-3.1-8B-Instruct-abliterated",
    "nvidia/Llama-3.1-Nemotron-51B-Instruct",
    "Llama-3.18B", "Llama-3.1", "llama3.1:latest", "8B", "Mistral-7B-Instruct", "mistral:7b",
    # Ollama's "deepseek-r1" is its 8B, https://ollama.com/library/deepseek-r1
    "Mistral-Large-3", "deepseek-r1:8b", "deepseek-r1:latest",
    "Llama-3.1-8B-日本語", "Llama-3.1-8B-Instruct.bak", "Llama-3.1-8B-Instruct-EAGLE",
    "RedHatAI/Qwen3-8B-speculator.eagle3", "nvidia/gpt-oss-120b-Eagle3",
    "RedHatAI/Sparse-Llama-3.1-8B-2of4", "model", "models", "", "/", "///", "..", "-", "instruct", "fp8", "a" * 5000, "Llama-3.1-8B\x00",
    "models--", "snapshots",
]  # fmt: skip
FORMATS = [
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "fp8"), ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "fp8"),
    ("RedHatAI/Llama-3.1-8B-Instruct-FP8-block", "fp8_block"), ("amd/Llama-3.1-8B-Instruct-FP8-KV", "fp8"),
    ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "int8"), ("Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "int4"),
    ("Meta-Llama-3.1-8B-Instruct-quantized.w8a16", "int8_w8a16"), ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "awq"),
    ("Llama-3.1-8B-Instruct-AWQ", "awq"), ("Llama-3.1-8B-Instruct-GPTQ-Int4", "gptq"), ("Llama-3.1-8B-GPTQ-Int8", "gptq_int8"),
    ("nvidia/Llama-3.1-8B-Instruct-FP4", "nvfp4"), ("RedHatAI/Llama-3.1-8B-Instruct-NVFP4", "nvfp4"), ("Llama-3.1-8B-BF16", "bf16"),
    ("Llama-3.1-8B-NVFP4A16", "nvfp4_w4a16"), ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", "bitsandbytes"),
    ("llama3.1:8b-instruct-q4_K_M", "q4_k_m"),
    ("hf.co/bartowski/Llama-3.1-8B-Instruct-GGUF:Q8_0", "q8_0"), ("/m/Llama-3.1-8B-Instruct-Q4_K_M.gguf", "q4_k_m"),
    ("Llama-3.1-8B-Instruct-IQ4_XS.gguf", "iq4_xs"), ("Llama-3.1-8B-it-qat-q4_0-gguf", "q4_0"), ("llama3.1:8b-instruct-fp16", "fp16"),
    ("nvidia/Llama-3.1-8B-Instruct-FP4-v2", "nvfp4"), ("Llama-3.1-8B-AWQ-W4A16-G128", "awq"), ("Llama-3.1-8B-int4-AutoRound", "int4"),
    ("Llama-3.1-8B-it-qat-w4a16-ct", "int4"), ("Llama-3.1-8B-it-qat-q4_0-unquantized", "bf16"),
    ("Llama-3.1-8B-unsloth-bnb-4bit", "bitsandbytes"), ("meta-llama_Llama-3.1-8B-Instruct-GGUF:Q6_K", "q6_k"),
    ("Llama-3.1-8B-int4-gptq-inc-auto-round", "int4"), ("nvidia/Llama-3.1-8B-NVFP4-QAD", "nvfp4"), ("Llama-3.1-8B-FP8-Paddle", "fp8"),
    ("Llama-3.1-8B-FP8-Instruct-2507", "fp8"), ("/m/Llama-3.1-8B-Instruct-Q4_K_M-00001-of-00002.gguf", "q4_k_m"),
]  # fmt: skip
UNCLEAR = [
    "Llama-3.1-8B-quantized", "bartowski/Llama-3.1-8B-Instruct-GGUF", "unsloth/Llama-3.1-8B-Instruct-GGUF:UD-Q4_K_XL", "Llama-3.1-8B-exl2",
    "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit", "Llama-3.1-8B-FP8-AWQ", "Llama-3.1-8B-dynamic", "Llama-3.1-8B-GPTQ-32g",
    "Llama-3.1-8B-w4a8", "Llama-3.1-8B-sparse", "Llama-3.1-8B-gguf-fp8-q4_0",
    "mlx-community/Llama-3.1-8B-4bit-DWQ", "Llama-3.1-8B-AWQ-Lite", "Llama-3.1-8B-it-qat-compressed-tensors",
]  # fmt: skip


@check_rows(("name", "row"), MEANT)
def test_meant(name: str, row: str) -> None:
    match = find(name, whole_catalogue())
    assert match.entry.name == row
    assert match.unclear is None


@check_rows("entry", lambda: whole_catalogue()[::6], ids=lambda entry: entry.name)
def test_every_name_and_alias_of_the_catalogue_means_its_row(entry: ModelEntry) -> None:
    for name in (entry.name, *entry.also):
        spelled = [name, name.lower(), name.upper(), f"/mnt/models/{name}/"]
        if "/" not in name:
            spelled.append(f"some-org/{name}")
        for written in spelled:
            assert find(written, whole_catalogue()).entry is entry


@check_rows("name", OTHERS)
def test_another_model_or_none(name: str) -> None:
    with pytest.raises(FactsError, match="not in the built-in catalogue") as caught:
        find(name, whole_catalogue())
    assert caught.value.reason == "model_unknown"
    assert len(str(caught.value)) < 400


def test_the_nearest_rows_are_named() -> None:
    with pytest.raises(FactsError, match=r"nearest: Llama-3\.1-8B"):
        find("acme/Llama-3.1-8B-sql", whole_catalogue())


@check_rows(
    ("name", "row"),
    [
        ("qwen2p5-coder-7b-instruct", "Qwen2.5-7B"), ("llama-v3p1-8b-instruct", LLAMA), ("llama-v2-7b-chat", "Llama-2-7B"),
        ("accounts/fireworks/models/deepseek-v3p1", "DeepSeek-V3"), ("mistral-7b-instruct-v0p2", "Mistral-7B-v0.2"),
    ],
)  # fmt: skip
def test_names_of_a_host_that_allows_no_dots(name: str, row: str) -> None:
    assert find(name, whole_catalogue()).entry.name == row


def test_a_row_of_one_organisation_is_meant_by_its_name_alone() -> None:
    rows = [
        ModelEntry(name, also, {}, "", "")
        for name, also in (("A-7B", ()), ("nvidia/A-7B-FP8", ()), ("x/B-7B", ("B-7B",)))
    ]
    assert find("nvidia/A-7B-FP8", rows).entry is rows[1]
    assert find("/models/nvidia/A-7B-FP8/", rows).entry is rows[1]
    assert find("/hub/models--nvidia--A-7B-FP8/snapshots/0", rows).entry is rows[1]
    assert find("other/A-7B-FP8", rows) == Match(rows[0], "fp8")
    assert find("A-7B-FP8", rows) == Match(rows[0], "fp8")
    assert find("y/B-7B", rows).entry is find("x/B-7B", rows).entry is rows[2]


@check_rows(("name", "said"), FORMATS)
def test_formats_that_a_name_says(name: str, said: str) -> None:
    match = find(name, whole_catalogue())
    assert (match.entry.name, match.weight_format, match.unclear) == (LLAMA, said, None)
    assert formats.named(said).bits > 0


@check_rows(
    ("name", "row", "said"),
    [
        # Qwen's own FP8, in blocks, is a row, which leaves a word that says nothing
        ("RedHatAI/Qwen3-8B-FP8-dynamic", "Qwen3-8B", "fp8"), ("RedHatAI/Qwen3-8B-FP8-block", "Qwen3-8B", "fp8_block"),
        ("Qwen/Qwen3-8B-FP8", "Qwen3-8B-FP8", None), ("someone/GLM-5-FP8-dynamic", "GLM-5", "fp8"),
    ],
)  # fmt: skip
def test_a_format_that_a_shorter_name_makes_whole(name: str, row: str, said: str | None) -> None:
    match = find(name, whole_catalogue())
    assert (match.entry.name, match.weight_format, match.unclear) == (row, said, None)


# formats as names end in them, and what they say
ENDINGS = [("-FP8", "fp8"), ("-FP8-dynamic", "fp8"), ("-NVFP4", "nvfp4"), ("-FP4-v2", "nvfp4"), ("-AWQ", "awq"), ("-GPTQ-Int4", "gptq"),
           ("-quantized.w4a16", "int4"), ("-GGUF:Q4_K_M", "q4_k_m"), ("-bf16", "bf16"), ("-MXFP4", "mxfp4")]  # fmt: skip


@cache
def unstated() -> list[str]:
    """Names whose row and which themselves state no format."""
    rows = [entry for entry in whole_catalogue() if "quantization_config" not in entry.config]
    named = [name for entry in rows for name in (entry.name, *entry.also) if "/" not in name]
    return [name for name in named if find(name, whole_catalogue()).weight_format is None]


@given(
    st.deferred(lambda: st.sampled_from(unstated())),
    st.sampled_from(["", "-2507", "-0528", "-08-2024", "-20250801", "-Instruct-2507"]),
    st.sampled_from(ENDINGS),
)
def test_every_name_of_the_catalogue_may_end_in_a_date_and_a_format(
    name: str, date: str, ending: tuple[str, str]
) -> None:
    written, said = ending
    match, plain = find(f"acme/{name}{date}{written}", whole_catalogue()), find(name, whole_catalogue())
    assert match.unclear is None
    if "quantization_config" in match.entry.config:
        # a checkpoint of that name, whose row says it exactly, and another format where the ending is another
        assert match.weight_format in (None, said)
    else:
        assert (match.entry.name, match.weight_format) == (plain.entry.name, said)


@check_rows(
    "name",
    lambda: [
        name for entry in whole_catalogue() for name in (entry.name, *entry.also)
        if re.search(r"(?i)(fp8|fp4|awq|gptq|int4|int8|bf16|w4a16|w8a8)$", name)
    ],
)  # fmt: skip
def test_an_alias_that_ends_in_a_format_yields_it(name: str) -> None:
    facts = model_facts(ModelSettings(name=name))
    kept = " ".join(group.format.name for group in facts.groups)
    word = re.split(r"[-_.]", name.lower())[-1]
    assert {"awq": "int4", "nvfp4": "fp4"}.get(word, word) in kept
    assert not facts.weights_assumed


@check_rows("name", UNCLEAR)
def test_formats_that_a_name_hints_at_without_saying_them(name: str) -> None:
    match = find(name, whole_catalogue())
    assert (match.entry.name, match.weight_format) == (LLAMA, None)
    assert match.unclear


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "llama3.1:8b", "Llama-3.1-8B-Instruct-2407"])
def test_a_name_without_a_format_says_none(name: str) -> None:
    match = find(name, whole_catalogue())
    assert (match.weight_format, match.unclear) == (None, None)


@check_rows(
    ("text", "expected"),
    [
        ("Llama-3.1-8B", "llama3-1-8b"), ("llama3.1:8b", "llama3-1-8b"), ("gpt-j-6b", "gptj6b"), ("GPT J 6B", "gptj6b"), ("8x7B", "8x7b"),
        ("", None), ("--", None), ("é", None), ("a/b", None), ("a" * 257, None), ("İ", None),
    ],
)  # fmt: skip
def test_key(text: str, expected: str | None) -> None:
    assert key(text) == expected


@given(st.text(max_size=400) | st.text(alphabet="lama3.18b-/:_ qf", max_size=400))
def test_any_text_means_a_row_or_none(text: str) -> None:
    with suppress(FactsError):
        assert find(text, whole_catalogue()).entry in whole_catalogue()


@check_rows(
    "text", ["q4-k-" * 800, "models--" * 500, "/".join(["a"] * 2000), "-fp8" * 60, "llama-" + "-".join(["1234"] * 48)]
)
def test_no_text_costs_more_than_a_moment(text: str) -> None:
    """Growing faster than linear with such texts would take minutes, not tenths of a second."""
    started = time.process_time()
    with pytest.raises(FactsError):
        find(text, whole_catalogue())
    assert time.process_time() - started < 5


# --- which names are near to one that no catalogue has ---


@check_rows(
    ("said", "among"),
    [
        ("lama-3.1-8b", "Llama-3.1-8B"), ("mixtarl-8x7b", "Mixtral-8x7B"),
        ("llama-3.1-8b-sql-lora", "Llama-3.1-8B"), ("qwen2.5-14b-instruct-mine", "Qwen2.5-14B"), ("qwen3-30b-a3b-nexus", "Qwen3-30B-A3B"),
        ("gemma-3-27b-medical", "Gemma-3-27B"), ("gpt-oss-20b-uncensored", "gpt-oss-20b"), ("glm-4.9-flash", "GLM-4.7-Flash"),
        ("mixtral-8x7b-acme", "Mixtral-8x7B"), ("llama-3.2-1b-x", "Llama-3.2-1B"), ("deepseek-v3.9", "DeepSeek-V3"),
    ],
)  # fmt: skip
def test_near(said: str, among: str) -> None:
    assert among in nearest(said, whole_catalogue())


@check_rows(
    "said",
    [
        # letters in common, nothing else
        "glm-9-colossus-400b", "gpt-4o", "gpt-5.6-sol", "claude-opus-5", "chat-prod", "my-model", "model", "llama-900b", "qwen9-3t",
        "phi", "", "8b", "-", "a" * 300, "mistral-huge-2t", "opt", "gpt-neo-900m", "deepseek-chat",
    ],
)  # fmt: skip
def test_nothing_near(said: str) -> None:
    assert nearest(said, whole_catalogue()) == []


def test_what_misled_before() -> None:
    """GLM-4.x was told that GPT-J-6B is near, and Qwen3.9-80B that Qwen3-8B is."""
    assert "GPT-J-6B" not in nearest("glm-4.6", whole_catalogue())
    assert not {"Qwen3-8B", "Qwen3-4B"} & set(nearest("qwen3.9-80b", whole_catalogue()))


def test_a_few_at_most() -> None:
    assert len(nearest("qwen3-8b-x", whole_catalogue())) <= 3

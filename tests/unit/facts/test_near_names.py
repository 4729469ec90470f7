"""Which names are near to one that no catalogue has: what is suggested is of its family and its size, or nothing is."""

from __future__ import annotations

from llm_serving_exporter.facts.names import nearest
from tests.support.models.shapes import whole_catalogue
from tests.support.rows import check_rows


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

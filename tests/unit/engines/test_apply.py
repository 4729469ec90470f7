"""What is known of an engine beyond its page: whose limits, and when they are taken for another's."""

from __future__ import annotations

from llm_serving_exporter.engines.apply import Overrides
from llm_serving_exporter.model.snapshot import ServerFacts
from tests.support.builders.snapshots import snapshot_of
from tests.support.rows import check_rows

PAGE = 'vllm:num_requests_running{{engine="0",model_name="{}"}} 1\n'


@check_rows(
    ("model", "contexts", "expected"),
    [
        ("a", {"a": 4096, "b": 8192}, 4096),
        # listed under another name: its only if there is one context
        ("third", {"a": 4096}, 4096),
        ("third", {"a": 4096, "b": 4096}, 4096),
        ("third", {"a": 4096, "b": 8192}, None),
        ("third", {}, None),
    ],
)
def test_the_context_of_a_model_is_its_own_or_the_only_one(
    model: str, contexts: dict[str, int], expected: int | None
) -> None:
    facts = ServerFacts(version="0.32.0", context_limit_tokens=contexts)
    (engine,) = snapshot_of(PAGE.format(model), facts=facts).engines
    assert engine.context_limit_tokens == expected
    (engine,) = snapshot_of(PAGE.format(model), facts=facts, overrides=Overrides(context_limit_tokens=512)).engines
    assert engine.context_limit_tokens == 512

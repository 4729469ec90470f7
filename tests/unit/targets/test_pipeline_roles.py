"""Whose word decides a target's role, and what counts as an engine of it."""

from typing import Any

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Role
from tests.support.builders.recordings import page
from tests.support.servers.replica import readings


def sglang(*roles: str, **target: Any) -> TargetReading:
    """One data-parallel rank a role."""
    text = "".join(
        f'sglang:num_running_reqs{{engine_type="{role}",model_name="m",dp_rank="{rank}",moe_ep_rank="0",pp_rank="0",tp_rank="0"}} 1\n'
        for rank, role in enumerate(roles)
    )
    return readings([{"/metrics": text}] * 2, **target)[-1]


def silent(found: TargetReading) -> set[str]:
    return {signal for signal, why in found.page.derived.signals.items() if why is Absence.OTHER_ROLE}


def test_a_page_that_says_its_role_is_believed() -> None:
    found = sglang("prefill", "prefill")
    assert (found.server.page_role, found.role) == (Role.PREFILL, Role.PREFILL)
    assert "slo_ttft" in silent(found)


def test_a_configured_role_wins_over_the_pages() -> None:
    found = sglang("prefill", role=Role.UNIFIED)
    assert (found.server.page_role, found.role) == (Role.PREFILL, Role.UNIFIED)
    assert silent(found) == set()


def test_engines_of_different_roles_give_the_target_none() -> None:
    found = sglang("prefill", "decode")
    assert [engine.role for engine in found.page.snapshot.engines] == ["prefill", "decode"]
    assert found.server.page_role is None
    assert silent(found) == set()


def test_what_has_no_engine_label_takes_no_share_of_the_gpus() -> None:
    """vLLM's refusals under data parallelism stand under engine "": two engines share two GPUs."""
    pages = [page("vllm-0.32-dp2", number) for number in (6, 6, 16)]
    found = readings([{"/metrics": one, "/version": '{"version":"0.32.0"}'} for one in pages], gpu_count=2)[-1]
    assert [(one.engine, one.is_engine) for one in found.page.snapshot.engines] == [
        ("", False),
        ("0", True),
        ("1", True),
    ]
    for engine in found.page.derived.engines[1:]:
        assert engine.phase_tokens_per_second["decode"] > 0
        assert engine.phase_tokens_per_second_per_gpu == engine.phase_tokens_per_second

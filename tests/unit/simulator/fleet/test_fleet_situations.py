"""What else can happen to a fleet: versions that lack families, upgrades under new names, canaries, late first tokens, replicas that an
exporter cannot ask."""

from __future__ import annotations

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity
from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec, ReplicaState
from llm_serving_simulator.fleet.gpus import FleetGpuSource, gpus_of
from llm_serving_simulator.fleet.history import Watch
from llm_serving_simulator.fleet.pages import leave_out
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Lengths, Mix, Outcome, PoissonWorkload, Profile
from tests.support.builders.pinned import pin_long_prompts, pin_share

ENGINE = EngineSpec(loading_seconds=30.0)
NEWER = replace(ENGINE, version="0.33.0", lacks=("vllm:time_to_first_token_seconds", "vllm:kv_cache_usage_perc"))
MIX = Mix(Lengths(200), Lengths(20, most=100))


def fleet(old: int, new: int = 0, rate: float = 2.0, *, engine: EngineSpec = ENGINE) -> Fleet:
    specs = [ReplicaSpec(f"r{number}", (f"n{number}",), engine) for number in range(old)]
    specs += [ReplicaSpec(f"r{old + number}", (f"n{old + number}",), NEWER) for number in range(new)]
    return Fleet(specs, PoissonWorkload(Profile(rate), [MIX], 1), ready=old)


def ready(found: Fleet) -> list[str]:
    return [replica.name for replica in found.replicas.values() if replica.ready]


def served(found: Fleet) -> dict[str, int]:
    return {name: sum(record.replica == name for record in found.ledger.records) for name in found.replicas}


def test_an_upgrade_replaces_one_after_the_other_and_is_never_short_of_one() -> None:
    found = fleet(2, 2)
    found.advance(60.0)
    found.upgrade()
    fewest = 2
    while found.now_seconds < 400.0:
        found.advance(found.now_seconds + 1.0)
        fewest = min(fewest, len(ready(found)))
    assert (ready(found), fewest) == (["r2", "r3"], 2)
    assert [found.replica(name).wanted for name in ("r0", "r1")] == [False, False]
    assert not [record for record in found.ledger.records if record.outcome is Outcome.LOST]


def test_half_an_upgrade_leaves_the_others_as_they_were() -> None:
    found = fleet(2, 1)
    found.upgrade(["r0"])
    found.advance(300.0)
    assert ready(found) == ["r1", "r2"]


def test_an_upgrade_to_what_never_loads_takes_nothing_away() -> None:
    specs = [ReplicaSpec("old", ("n0",), ENGINE), ReplicaSpec("new", ("n1",), replace(NEWER, loading_seconds=1e6))]
    found = Fleet(specs, PoissonWorkload(Profile(1.0), [MIX], 1), ready=1)
    found.upgrade()
    found.advance(3600.0)
    assert (ready(found), found.replica("new").state) == (["old"], ReplicaState.LOADING)


def test_an_upgrade_needs_somebody_to_follow() -> None:
    with pytest.raises(ValueError, match="only 1 were never started"):
        fleet(2, 1).upgrade()


def test_a_page_lacks_families_whole_and_no_others() -> None:
    whole, part = fleet(1), Fleet([ReplicaSpec("r0", ("n0",), NEWER)], PoissonWorkload(Profile(2.0), [MIX], 1))
    pages = []
    for found in (whole, part):
        found.advance(60.0)
        page = found.page("r0")
        assert page is not None
        pages.append(page.decode().splitlines())
    missing = [line for line in pages[0] if line not in pages[1]]
    assert [line for line in pages[1] if line not in pages[0]] == []
    assert missing
    assert all("time_to_first_token_seconds" in line or "kv_cache_usage_perc" in line for line in missing)
    assert not any("time_to_first_token_seconds" in line or "kv_cache_usage_perc" in line for line in pages[1])


def test_a_family_is_left_out_by_its_whole_name() -> None:
    page = b'# TYPE a gauge\na 1\na{x="y"} 1\na_bucket{le="1"} 2\na_b 3\n'
    assert leave_out(page, ["a"]) == b"a_b 3\n"


@pytest.mark.e2e
def test_a_canary_gets_its_share_and_the_others_the_rest() -> None:
    found = fleet(3, rate=10.0)
    pin_share(found, 0.01, "r2")
    found.advance(1000.0)
    counts = served(found)
    assert counts["r2"] == sum(counts.values()) // 100
    assert abs(counts["r0"] - counts["r1"]) < 0.1 * counts["r0"]


def test_long_prompts_go_to_one_replica_and_nothing_else_does() -> None:
    found = fleet(3, rate=10.0)
    pin_long_prompts(found, 400, "r1")
    found.advance(300.0)
    assert served(found)["r1"] > 10
    for record in found.ledger.records:
        assert (record.request.prompt_tokens >= 400) == (record.replica == "r1")


def test_a_late_first_token_is_late_for_that_replica_only_and_counts_from_arrival() -> None:
    found = fleet(2)
    found.delay_first_tokens(4.0, ["r1"])
    found.advance(300.0)
    ttft = {
        name: [one.ttft_seconds for one in found.ledger.records if one.replica == name and one.ttft_seconds is not None]
        for name in found.replicas
    }
    assert min(ttft["r1"]) >= 4.0
    assert max(ttft["r0"]) < 1.0
    found.delay_first_tokens(0.0, ["r1"])
    found.advance(310.0)
    later = len(found.ledger.records)
    found.advance(500.0)
    assert max(one.ttft_seconds or 0.0 for one in list(found.ledger.records)[later:]) < 1.0


def test_requests_that_a_front_end_keeps_are_lost_with_it() -> None:
    found = fleet(1, rate=5.0)
    found.delay_first_tokens(10.0)
    found.advance(5.0)
    assert found.replica("r0").load > 10
    found.restart("r0")
    found.advance(20.0)
    assert found.totals().lost > 10
    assert found.replica("r0").load == 0


def test_a_throttled_gpu_says_so_and_its_engine_is_slower() -> None:
    found = fleet(2)
    source = FleetGpuSource(found, wall=lambda: 0.0)
    found.throttle(3.0, ["r1"])
    hot = {one.identity.uuid: one.slowdown for one in source.read().gpus}
    assert [of["hw_thermal_slowdown"] for of in (hot[gpus_of(found, "r0")[0]], hot[gpus_of(found, "r1")[0]])] == [
        False,
        True,
    ]
    found.throttle(1.0, ["r1"])
    assert not any(one.slowdown["hw_thermal_slowdown"] for one in source.read().gpus if one.slowdown)


def test_an_exporter_cannot_ask_who_is_cut_off_and_clients_notice_nothing() -> None:
    found = fleet(2)
    watch = Watch(found, interval_seconds=60.0, wanted={"llm_serving_target_up", "llm_serving_target_state"})

    def up() -> dict[str, float]:
        return {of["target"]: value for name, of, value in watch.samples() if name == "llm_serving_target_up"}

    found.advance(60.0)
    assert up() == {"r0": 1.0, "r1": 1.0}
    found.cut_off(["r1"])
    found.advance(120.0)
    assert up() == {"r0": 1.0, "r1": 0.0}
    before = served(found)["r1"]
    found.advance(180.0)
    assert served(found)["r1"] > before
    found.reconnect(["r1"])
    found.advance(240.0)
    assert up() == {"r0": 1.0, "r1": 1.0}


def test_a_watch_that_discovers_has_the_targets_that_there_are() -> None:
    found = fleet(2)
    identity = Identity(namespace="llm", pod="r1", workload="chat", workload_kind="Deployment")
    watch = Watch(
        found,
        interval_seconds=60.0,
        wanted={"llm_serving_target_info"},
        identities={"r1": identity},
        discovers=lambda replica: replica.state is not ReplicaState.STOPPED,
    )
    found.advance(60.0)
    infos = {of["target"]: dict(of) for _name, of, _value in watch.samples()}
    assert set(infos) == {"r0", "r1"}
    assert {name: infos["r1"][name] for name in ("namespace", "pod", "workload")} == {
        "namespace": "llm",
        "pod": "r1",
        "workload": "chat",
    }
    found.scale(1)
    found.advance(240.0)
    assert {of["target"] for _name, of, _value in watch.samples()} == {"r0"}
    found.scale(2)
    found.advance(400.0)
    assert {of["target"] for _name, of, _value in watch.samples()} == {"r0", "r1"}


def test_a_replica_that_is_stopped_stays_so_until_it_is_restarted() -> None:
    found = fleet(2)
    found.stop("r1")
    found.advance(200.0)
    assert ready(found) == ["r0"]
    found.restart("r1")
    found.advance(300.0)
    assert ready(found) == ["r0", "r1"]

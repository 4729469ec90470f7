"""Requests that are pinned to a replica of a simulated fleet while it is ready, whatever it has to do."""

from collections.abc import Collection

from llm_serving_simulator.fleet.fleet import Fleet, Replica, least_loaded
from llm_serving_simulator.fleet.workload import Request


def pin_share(fleet: Fleet, share: float, name: str) -> None:
    """From now on a replica gets that share of the requests, evenly, as a canary does."""
    pinned = fleet.replica(name)
    routed = taken = 0

    def choose(replicas: Collection[Replica], _request: Request) -> Replica | None:
        nonlocal routed, taken
        routed += 1
        if pinned.ready and taken < int(share * routed):
            taken += 1
            return pinned
        return least_loaded(replica for replica in replicas if replica is not pinned) or least_loaded(replicas)

    fleet.choose_replica = choose


def pin_long_prompts(fleet: Fleet, tokens: int, name: str) -> None:
    """From now on a replica gets the prompts of at least so many tokens, and nothing else."""
    pinned = fleet.replica(name)

    def choose(replicas: Collection[Replica], request: Request) -> Replica | None:
        if pinned.ready and request.prompt_tokens >= tokens:
            return pinned
        return least_loaded(replica for replica in replicas if replica is not pinned) or least_loaded(replicas)

    fleet.choose_replica = choose

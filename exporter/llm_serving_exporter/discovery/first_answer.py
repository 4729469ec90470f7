"""Waiting for what discovery answers first: a command that ends, unlike the daemon, has no second chance."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.discovery.sections import Discovered, Discovery
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config

# a request for a list has 10 s by default
LONGEST_WAIT_SECONDS = 12.0
# before a person is told what the command waits for
SILENT_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 0.05


def discover_once(config: Config, runtimes: Collection[str], say: Callable[[str], object]) -> Discovered:
    """What the configuration and discovery come to once every source has answered or failed, at most `LONGEST_WAIT_SECONDS` from now.

    A source without an answer by then is a problem. `say` gets a line when it takes longer than a moment. `runtimes`: names of those that
    have a table.
    """
    discovery = Discovery(config.discovery, shard=config.shard)
    try:
        return _wait(discovery, config.targets, runtimes, say)
    finally:
        discovery.close()


def _wait(
    discovery: Discovery, configured: tuple[Target, ...], runtimes: Collection[str], say: Callable[[str], object]
) -> Discovered:
    found = discovery.targets(configured, runtimes)
    started, said = elapsed_seconds(), False
    while found.unanswered and (waited := elapsed_seconds() - started) < LONGEST_WAIT_SECONDS:
        if waited > SILENT_SECONDS and not said:
            said = True
            say(f"waiting up to {LONGEST_WAIT_SECONDS:g} s for {', '.join(found.unanswered)}")
        time.sleep(_LOOK_EVERY_SECONDS)
        if discovery.changed():
            found = discovery.targets(configured, runtimes)
    fix = "Check that it is up and can be reached from here."
    late = [Problem(name, "", "it has not answered in time", fix) for name in found.unanswered]
    return replace(found, problems=(*map(str, late), *found.problems)[:100], failures=found.failures + len(late))

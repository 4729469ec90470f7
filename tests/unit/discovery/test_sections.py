"""All sections together: whose targets they are, with whose credentials, in which shard; docs/discovery.md as it stands."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import pytest

from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import PREFIX
from llm_serving_exporter.discovery import sections
from llm_serving_exporter.discovery.section import MOST_KNOWN_TARGETS, SectionReading, Source
from llm_serving_exporter.discovery.sections import (
    HANDOVER_SECONDS,
    LONGEST_WAIT_SECONDS,
    MAKERS,
    Discovered,
    Discovery,
    merge_targets,
)
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import (
    HttpSettings,
    Identity,
    PodFault,
    PodState,
    Secret,
    Shard,
    Target,
    WaitingPod,
)
from llm_serving_exporter.settings.discovery import FileDiscovery
from tests.support.builders.configuration import load_flags, load_text
from tests.support.paths import ROOT
from tests.support.quick import keep_quick
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as answers
from tests.support.servers.driven_exporter import HandClock
from tests.support.servers.faultserver import FaultServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.yaml_text import load_yaml


def target(number: int, **changes: object) -> Target:
    name = f"serving/chat-{number}:8000"
    return Target(**{"name": name, "url": f"http://10.{number >> 8}.{number & 255}.1:8000", **changes})


class Given:
    """A section that says what the test says."""

    def __init__(self, reading: SectionReading) -> None:
        self.reading, self.new, self.closed = reading, True, 0

    def say(self, reading: SectionReading) -> None:
        self.reading, self.new = reading, True

    def have_changed(self) -> bool:
        return self.new

    def read(self, runtimes: Collection[str]) -> SectionReading:
        self.new = False
        return self.reading

    def close(self) -> None:
        self.closed += 1


def discovery_of(
    monkeypatch: pytest.MonkeyPatch, *sections: Given, shard: Shard | None = None, clock: HandClock | None = None
) -> Discovery:
    """A Discovery that runs these sections."""
    given = {FileDiscovery((str(number),), Target("", "")): section for number, section in enumerate(sections)}
    monkeypatch.setattr(
        "llm_serving_exporter.discovery.sections.MAKERS",
        {**MAKERS, FileDiscovery: lambda section, _host, _earlier: given[section]},
    )
    return Discovery(tuple(given), shard=shard, monotonic=(clock or HandClock()).monotonic)


def source(*targets: Target, name: str = "a", problems: tuple[Problem, ...] = ()) -> SectionReading:
    return SectionReading((Source(name, targets, problems),))


def answered(discovery: Discovery) -> Discovered | None:
    """What its sections come to, once every source has answered or failed."""
    found = discovery.targets((), RUNTIMES)
    return None if found.unanswered else found


SECRETS = {name: HttpSettings(bearer_token=Secret(env=name)) for name in ("FIRST", "SECOND", "OWN")}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_server_in_two_sections_gets_the_credentials_of_the_one_that_has_it(order: tuple[int, int]) -> None:
    lists = [
        source(target(1, http=SECRETS["FIRST"]), target(2, http=SECRETS["FIRST"]), name="first"),
        source(target(1, name="x"), target(3, http=SECRETS["SECOND"]), name="second"),
    ]
    configured = (target(3, name="mine", http=SECRETS["OWN"]),)
    known, problems = merge_targets(configured, [lists[index] for index in order])
    found = {(one.name, one.url, one.http.bearer_token) for one in known}
    first = lists[order[0]].sources[0].targets
    assert (first[0].name, first[0].url, first[0].http.bearer_token) in found
    assert ("mine", target(3).url, Secret(env="OWN")) in found
    # whole targets of one section, never a mixture
    listed = {
        (one.name, one.url, one.http.bearer_token) for reading in lists for one in reading.sources[0].targets or ()
    }
    assert found <= listed | {("mine", target(3).url, Secret(env="OWN"))}
    assert len(problems) == 2


def test_credentials_of_a_list_over_http_end_at_its_hosts(tmp_path: Path) -> None:
    groups = [{"targets": ["127.0.0.2:1", "127.0.0.3:1", "10.0.0.1:1"]}]
    with FaultServer({"/": answers.page(json.dumps(groups).encode(), "application/json")}) as server:
        (tmp_path / "a.yml").write_text("- targets: ['10.0.0.1:1']\n")
        text = f"""
file_sd: [{{files: [a.yml]}}]
http_sd: [{{url: '{server.url}/', hosts: [127.0.0.2], defaults: {{auth: {{bearer_token_env: T}}}}}}]
"""
        config = load_text(tmp_path, text, environ={"T": "x"})
        with closing(Discovery(config.discovery)) as discovery:
            found = wait_until(lambda: answered(discovery), "the answer")
    assert {one.url: one.http.bearer_token for one in found.targets} == {
        "http://10.0.0.1:1": None,
        "http://127.0.0.2:1": Secret(env="T"),
    }
    assert found.failures == 1
    assert 'does not allow "127.0.0.3" and "10.0.0.1"' in found.problems[0]


def test_labels_of_a_list_over_http_and_of_all_defaults_add_up(tmp_path: Path) -> None:
    group = {"targets": ["127.0.0.1:8000", "10.0.0.1:8000"], "labels": {"team": "search", "workload": "chat"}}
    with FaultServer({"/": answers.page(json.dumps([group]).encode(), "application/json")}) as server:
        text = f"""
target_defaults: {{region: eu, labels: {{team: ops, tier: gold, env: prod}}}}
http_sd: [{{url: '{server.url}/', hosts: [127.0.0.1, 10.0.0.1], defaults: {{namespace: prod, labels: {{env: live}}}}}}]
"""
        config = load_text(tmp_path, text)
        environ = {"POD_NAMESPACE": "prod", "POD_NAME": "chat-0", "POD_UID": "uid-1", "NODE_NAME": "n1"}
        with closing(Discovery(config.discovery, environ)) as discovery:
            found = wait_until(lambda: answered(discovery), "the answer")
    own = (("env", "live"), ("team", "search"), ("tier", "gold"))
    listed = Identity("prod", workload="chat", region="eu", labels=own)
    assert found.problems == ()
    assert {one.name: (one.identity, one.nodes) for one in found.targets} == {
        # the one that answers on loopback is in the exporter's own pod
        "prod/chat-0:8000": (replace(listed, pod="chat-0", pod_uid="uid-1"), ("n1",)),
        "10.0.0.1:8000": (listed, ()),
    }


def test_no_more_than_one_exporter_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    section = Given(source(*map(target, range(3000))))
    found = discovery_of(monkeypatch, section).targets((), ())
    assert (len(found.targets), found.elsewhere, found.left_out, found.failures) == (2000, 0, 1000, 1)
    assert found.problems == (
        "discovery: 1000 of 3000 targets are left out, one exporter reads 2000. "
        "Share them among several exporters: --shard 1/2 for the first, --shard 2/2 for the second.",
    )
    halves = [discovery_of(monkeypatch, section, shard=Shard(number, 2)).targets((target(7),), ()) for number in (1, 2)]
    assert {one.name for half in halves for one in half.targets} == {target(number).name for number in range(3000)}
    assert [len(half.targets) + half.elsewhere for half in halves] == [3000, 3000]
    assert [half.left_out for half in halves] == [0, 0]


@pytest.mark.parametrize("most", keep_quick([1000, MOST_KNOWN_TARGETS], lambda most: most == 1000))
def test_no_more_than_can_be_known(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "MOST_KNOWN_TARGETS", most)
    each = most * 6 // 10
    lists = [source(*(Target(f"{key}{number}", f"http://{key}{number}:1") for number in range(each))) for key in "ab"]
    known, problems = merge_targets((), lists)
    assert len(known) == most
    assert [problem.what for problem in problems] == [f"{2 * each - most:,} targets beyond {most:,} are left out"]


@pytest.mark.parametrize("count", keep_quick([2000, 10_000], lambda count: count == 2000))
def test_at_rest_ten_thousand_targets_are_read_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [target(number) for number in range(count)]
    # one server under two names in two lists: deduplicated before it is shared, or two shards would read it
    again = [target(number, name=f"again-{number}") for number in range(500)]
    sections = [Given(source(*targets)), Given(source(*again, name="b"))]
    held = Counter(
        one.url
        for number in range(1, 9)
        for one in discovery_of(monkeypatch, *sections, shard=Shard(number, 8)).targets((), ()).targets
    )
    assert set(held) == {one.url for one in targets}
    assert set(held.values()) == {1}


def test_servers_on_the_own_host_belong_to_no_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    own = (Target("pod-7:8000", "http://localhost:8000"), Target("six", "http://[::1]:1"))
    for number in (1, 2, 3):
        found = discovery_of(monkeypatch, Given(source()), shard=Shard(number, 3)).targets(own, ())
        assert found.targets == own


def test_pods_go_with_their_targets_and_waiting_ones_with_their_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [target(number) for number in range(40)]
    waiting = tuple(WaitingPod("serving", f"new-{number}", "w", "Deployment", "", "unified") for number in range(40))
    pods = {one.name: PodState(was_ready=True) for one in targets}
    section = Given(SectionReading((Source("cluster", tuple(targets)),), pods=pods, waiting=waiting))
    found = [discovery_of(monkeypatch, section, shard=Shard(number, 3)).targets((), ()) for number in (1, 2, 3)]
    assert all(set(one.pods) == {held.name for held in one.targets} for one in found)
    seen = Counter(pod.pod for one in found for pod in one.waiting)
    assert (len(seen), set(seen.values())) == (40, {1})
    whole = discovery_of(monkeypatch, section).targets((), ())
    assert (whole.pods, whole.waiting) == (pods, waiting)


def of_pod(number: int, uid: str, url: str = "", **changes: object) -> Target:
    own = {"url": url} if url else {}
    return target(number, identity=Identity("serving", f"chat-{number}", uid), **own, **changes)


def told(*found: tuple[Target, PodState]) -> SectionReading:
    return SectionReading(
        (Source("cluster", tuple(one for one, _ in found)),), pods={one.name: state for one, state in found}
    )


def test_a_pod_in_two_sections_is_read_as_the_first_one_says_and_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = PodState(loading_limit_seconds=60.0), PodState(loading_limit_seconds=7.0)
    waiting = tuple(WaitingPod("serving", "new", "w", "Deployment", model, "unified") for model in ("a", "b"))
    readings = [
        replace(told((of_pod(1, "uid", group=group), state)), waiting=(one,))
        for group, state, one in zip(("blue", "green"), (first, second), waiting, strict=True)
    ]
    found = discovery_of(monkeypatch, *map(Given, readings)).targets((), ())
    assert [one.group for one in found.targets] == ["blue"]
    assert (found.problems, found.failures) == ((), 0)
    assert (found.pods, found.waiting) == ({target(1).name: first}, waiting[:1])


def test_what_a_pod_does_is_said_of_its_own_target_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = of_pod(1, "uid", "http://10.9.9.9:8000")
    listed, pods = Given(source(target(1))), Given(told((pod, PodState(fault=PodFault.CRASH_LOOP))))
    found = discovery_of(monkeypatch, listed, pods).targets((), ())
    assert ([one.url for one in found.targets], found.pods) == ([target(1).url], {})
    assert "is already taken" in found.problems[0]


@check_rows(
    ("old", "new"),
    [
        # its node is lost, and what it runs is called ready for ever
        (PodState(True, 10.0, PodFault.NODE_LOST, is_ready=True), PodState(False, 20.0)),
        # it ends, and its address is handed on before it is gone
        (PodState(True, 10.0), PodState(False, 20.0)),
        (PodState(True, 10.0), PodState(True, 20.0, is_ready=True)),
        # two in the network of a node: the port is the other one's
        (PodState(False, 20.0, PodFault.CRASH_LOOP), PodState(True, 10.0, is_ready=True)),
        (PodState(False, 20.0), PodState(True, 10.0, is_ready=True)),
    ],
)
@check_rows("apart", [False, True])
@check_rows("turned", [False, True])
def test_an_address_that_two_pods_have_is_that_of_the_one_that_has_it_now(
    old: PodState, new: PodState, apart: bool, turned: bool
) -> None:
    url = "http://10.0.0.1:8000"
    pair = [(of_pod(1, "uid-1", url), old), (of_pod(2, "uid-2", url), new)]
    pair = pair[::-1] if turned else pair
    known, problems = merge_targets((), [told(one) for one in pair] if apart else [told(*pair)])
    assert [one.name for one in known] == ["serving/chat-2:8000"]
    what = "http://10.0.0.1:8000 is the address of serving/chat-2:8000 now, serving/chat-1:8000 is left out"
    assert [problem.what for problem in problems] == [what]


def test_what_is_configured_keeps_its_address() -> None:
    mine = target(7, url="http://10.0.0.1:8000")
    known, problems = merge_targets((mine,), [told((of_pod(1, "uid-1", mine.url), PodState(True, is_ready=True)))])
    assert (known, len(problems)) == ([mine], 1)


def test_a_failure_is_counted_when_its_source_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem("a", "", "broken", "Mend it.")
    broken, other = Given(source(problems=(problem,))), Given(source(target(1), name="b"))
    discovery = discovery_of(monkeypatch, broken, other)
    assert discovery.targets((), ()).failures == 1
    other.say(source(target(2), name="b"))
    found = discovery.targets((), ())
    assert (found.failures, found.problems) == (0, ("a: broken. Mend it.",))
    broken.say(broken.reading)
    assert discovery.targets((), ()).failures == 1


def test_a_failure_that_comes_while_its_section_is_read_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    section = Given(source(target(1)))
    discovery = discovery_of(monkeypatch, section)
    assert discovery.targets((), ()).failures == 0
    section.reading = source(target(1), problems=(Problem("a", "", "broken", "Mend it."),))
    assert not section.have_changed()
    assert [discovery.targets((), ()).failures for _ in range(2)] == [1, 0]


def test_a_source_that_has_not_answered_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    section = Given(SectionReading((Source("cluster", None), Source("b", ()))))
    discovery = discovery_of(monkeypatch, section)
    assert discovery.targets((), ()).unanswered == ("cluster",)
    section.say(source(target(1), name="cluster"))
    assert discovery.changed()
    assert discovery.targets((), ()).unanswered == ()


def test_sections_that_stay_run_on_and_those_that_go_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Given] = []

    def make(section: FileDiscovery, _host: object, earlier: object) -> Given:
        made.append(Given(source(name=section.files[0])))
        return made[-1]

    monkeypatch.setattr("llm_serving_exporter.discovery.sections.MAKERS", {FileDiscovery: make})
    first, second, third = (FileDiscovery((name,), Target("", "")) for name in "abc")
    discovery = Discovery((first, second))
    discovery.replace((third, second), None)
    assert [section.closed for section in made] == [1, 0, 0]
    discovery.replace((second, second), None)  # the same one twice is two sections
    assert [section.closed for section in made] == [1, 0, 1, 0]
    discovery.close()
    discovery.close()
    assert [section.closed for section in made] == [1, 2, 1, 2]


def test_a_changed_shard_lets_its_targets_go_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, targets = HandClock(), [target(number) for number in range(200)]
    discovery = discovery_of(monkeypatch, Given(source(*targets)), shard=Shard(1, 2), clock=clock)
    before = {one.name for one in discovery.targets((), ()).targets}
    sections = tuple(section for section, _ in discovery._running)
    discovery.replace(sections, Shard(1, 3))
    after = {name for name in before if Shard(1, 3).holds(name)}
    assert after < before
    assert {one.name for one in discovery.targets((), ()).targets} == before
    clock.seconds += HANDOVER_SECONDS - 0.001
    assert not discovery.changed()
    clock.seconds += 0.001
    assert discovery.changed()
    assert {one.name for one in discovery.targets((), ()).targets} == after
    assert not discovery.changed()
    # a reload that leaves the shard as it is holds nothing on
    discovery.replace(sections, Shard(1, 3))
    assert {one.name for one in discovery.targets((), ()).targets} == after


class Exporter:
    """One of several that share a fleet, with the series that Prometheus has of it."""

    def __init__(self, discovery: Discovery, start: float) -> None:
        self.discovery, self.start = discovery, start
        self.held: set[str] = set()
        # by target: time and value of a counter
        self.series: dict[str, list[tuple[float, float]]] = {}

    def look(self) -> None:
        self.held = {one.name for one in self.discovery.targets((), ()).targets}

    def scrape(self, now: float) -> None:
        for name in self.held:
            self.series.setdefault(name, []).append((now, counter_of(name, now)))

    def rate(self, name: str, now: float, range_seconds: float) -> float | None:
        points = [point for point in self.series.get(name, []) if now - range_seconds < point[0] <= now]
        if len(points) < 2:
            return None
        return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


def counter_of(name: str, now: float) -> float:
    """What the engine itself counts, whoever reads it."""
    return (1 + int(name.partition("chat-")[2].partition(":")[0]) % 5) * now


@check_rows(("old", "new"), [(4, 5), (5, 4), (1, 2), (3, 3)])
def test_rates_stay_whole_while_exporters_take_another_number_of_shards(
    monkeypatch: pytest.MonkeyPatch, old: int, new: int
) -> None:
    """Those that stay reload, and new ones start, within two looks of one another, in any order; those that go end after that."""
    chance, clock = random.Random(old * 10 + new), HandClock()
    targets = [target(number) for number in range(60)]
    reload_at = {number: 200.0 + chance.uniform(0, 10.0) for number in range(1, max(old, new) + 1)}
    last = max(reload_at.values())
    exporters: dict[int, Exporter] = {}
    times_held: list[tuple[float, Counter[str]]] = []
    for second in range(0, 400):
        clock.seconds = now = float(second)
        for number in range(1, max(old, new) + 1):
            if number not in exporters and (number <= old or now >= reload_at[number]):
                shard = Shard(number, old if now < 200.0 else new)
                exporters[number] = Exporter(
                    discovery_of(monkeypatch, Given(source(*targets)), shard=shard, clock=clock), now
                )
            if number > new and number in exporters and now > last + HANDOVER_SECONDS:
                exporters[number].held = set()
                continue
            if number in exporters and number <= new and number <= old and now >= reload_at[number]:
                discovery = exporters[number].discovery
                discovery.replace(tuple(section for section, _ in discovery._running), Shard(number, new))
            if number in exporters and (second % 5 == number % 5 or not exporters[number].series):
                exporters[number].look()
        for number, exporter in exporters.items():
            if second % 15 == number % 15:
                exporter.scrape(now)
        times_held.append((now, Counter(name for exporter in exporters.values() for name in exporter.held)))
        if now >= 100.0:
            for one in targets:
                rates = [exporter.rate(one.name, now, 60.0) for exporter in exporters.values()]
                assert max(rate for rate in rates if rate is not None) == pytest.approx(counter_of(one.name, 1.0))
    for now, held in times_held:
        assert set(held) == {one.name for one in targets}, f"missing at {now}"
        if now < 200.0 or now > last + HANDOVER_SECONDS + 10.0:
            assert set(held.values()) == {1}, f"doubled at {now}"


# --- docs/discovery.md: its commands run as they stand, and print what it says ---


PAGE = (ROOT / "docs/discovery.md").read_text()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.e2e
def test_its_commands_print_what_it_shows(tmp_path: Path) -> None:
    examples = re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 3
    (tmp_path / "bin").mkdir()
    for name, words in (("python3", ""), ("llm-serving-exporter", "-m llm_serving_exporter")):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    for script, expected in examples:
        done = subprocess.run(
            ["bash", "-ec", script.replace("8099", str(free_port()))],
            env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_the_statefulset_gives_each_pod_its_shard() -> None:
    (block,) = re.findall(r"```yaml\n(apiVersion.*?)```", PAGE, re.DOTALL)
    spec = load_yaml(block)["spec"]
    flags = [word for word in spec["template"]["spec"]["containers"][0]["args"] if word.startswith("--shard")]
    pods = [f"exporter-{ordinal}" for ordinal in range(spec["replicas"])]
    found = [load_flags("--target", "a:1", *flags, host_name=pod).shard for pod in pods]
    assert found == [Shard(number, 4) for number in (1, 2, 3, 4)]


def test_its_numbers_and_series_are_those_of_the_code() -> None:
    assert f"wait up to {LONGEST_WAIT_SECONDS:g} seconds" in PAGE
    assert f"old part for {HANDOVER_SECONDS:g} seconds" in PAGE
    series = set(re.findall(rf"\b{PREFIX}(\w+)", PAGE))
    assert series == {"exporter_discovery_failures_total", "exporter_targets", "exporter_shard_held"}
    assert series <= set(BY_NAME)

"""Prometheus http_sd: a real server that answers well, badly, slowly, too much or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llm_serving_exporter.discovery.prometheus_sd import SectionHttp
from llm_serving_exporter.discovery.section import Source
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import HttpSettings, Role, Secret, Target
from llm_serving_exporter.settings.discovery import HttpDiscovery
from llm_serving_exporter.settings.options import Host
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as answers
from tests.support.servers.faultserver import Behaviour, FaultServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until

JSON = "application/json"
GOOD = [{"targets": ["10.0.0.7:8000"], "labels": {"role": "decode", "__meta_x": "y"}}]
HOST = Host("pod-7", "gpu-node-3")


def listing(content: object) -> Behaviour:
    return answers.page(json.dumps(content).encode(), JSON)


def section_for(server: FaultServer, **changes: object) -> HttpDiscovery:
    http = HttpSettings(timeout_seconds=5.0, max_body_bytes=4 * 2**20)
    section = HttpDiscovery(server.url, "/targets", ("10.0.0.0/8",), 60.0, http, Target("", ""))
    return replace(section, **changes)


class ByHand(SectionHttp):
    """A section that asks when the test says so."""

    def __init__(self, section: HttpDiscovery, earlier: tuple[SectionHttp, ...] = ()) -> None:
        super().__init__(section, HOST, earlier=earlier, start=lambda _name, _job: None)

    def peek(self, runtimes: Collection[str] = RUNTIMES) -> Source:
        """What it says without another request."""
        (source,) = self.read(runtimes).sources
        return source

    def after_asking(self) -> Source:
        """What it says after one more request."""
        self.peek()
        self.ask()
        return self.peek()


@contextmanager
def serving(behaviour: Behaviour, **changes: object) -> Iterator[tuple[FaultServer, ByHand]]:
    with FaultServer({"/targets": behaviour}) as server:
        section = ByHand(section_for(server, **changes))
        yield server, section
        section.close()


def said(source: Source) -> list[str]:
    return [str(problem).removeprefix(f"{source.name}: ") for problem in source.problems]


def names(source: Source) -> list[str] | None:
    return None if source.targets is None else [target.name for target in source.targets]


def test_a_list_of_groups() -> None:
    with serving(listing([*GOOD, {"targets": ["10.0.0.8:1", "10.0.0.9:2"]}])) as (server, section):
        before = section.peek()
        assert (before.targets, before.problems) == (None, ())
        found = section.after_asking()
        assert names(found) == ["10.0.0.7:8000", "10.0.0.8:1", "10.0.0.9:2"]
        assert (found.problems, found.warnings) == ((), ())
        assert found.targets[0] == Target("10.0.0.7:8000", "http://10.0.0.7:8000", role=Role.DECODE)
        assert found.name == f"{server.url}/targets"
        (request,) = server.requests
        assert request.headers["x-prometheus-refresh-interval-seconds"] == "60"
        assert request.headers["accept"] == JSON


def test_an_empty_list_is_an_answer() -> None:
    with serving(listing([])) as (_, section):
        found = section.after_asking()
        assert (found.targets, found.problems) == ((), ())


# what a server does that gives no page is tested with the fetch stage: some of it, and what an answer says
FAULTS = {
    "status": (answers.status(500, b"inventory is down\n"), "the server answered /targets with 500: inventory is down."),
    "redirect": (answers.redirect("http://169.254.169.254/latest/"), "the server redirects to http://169.254.169.254/latest/"),
    "not json": (answers.page(b"[{", JSON), "this is not JSON at line 1, column 3"),
    "not utf-8": (answers.page(b'["\xff"]', JSON), "byte 2 of the answer is not UTF-8. Let the server answer in UTF-8."),
    "key twice": (answers.page(b'[{"targets": [], "targets": []}]', JSON), 'the key "targets" is given twice in one object'),
    "object": (listing({"targets": []}), "the answer must be a list of {targets: […], labels: {…}}."),
    "null": (answers.page(b"null", JSON), "the answer is empty. Write [] if there are no targets."),
    "number": (answers.page(b"1" * 10_000, JSON), "the answer must be a list"),
    "texts": (listing(["10.0.0.7:8000"]), "[0]: must be a mapping {targets: […], labels: {…}}."),
    "deep": (answers.page(b"[" * 100_000, JSON), "the answer is nested more than 32 levels deep."),
    "deep and closed": (answers.page(b"[" * 5_000 + b"]" * 5_000, JSON), "the answer is nested more than 32 levels deep."),
    "values": (answers.page(b"[" + b"{}," * 200_001 + b"{}]", JSON), "the answer has more than 400000 values."),
    "large": (answers.page(b'["' + b"x" * 2**22 + b'"]', JSON), "the body exceeds 4194304 bytes"),
    "label": (listing([{"targets": ["10.0.0.7:1"], "labels": {"role": "both"}}]), '[0].labels.role: "both" is not a role.'),
    "url": (listing([{"targets": ["http://10.0.0.7:1/x"]}]), "[0].targets[0]: "),
    "hang up": (answers.hang_up(), ""),
}  # fmt: skip


@check_rows("fault", FAULTS)
def test_whatever_the_server_does_the_last_good_targets_stay(fault: str) -> None:
    behaviour, expected = FAULTS[fault]
    with serving(behaviour) as (server, section):
        found = section.after_asking()
        assert found.targets is None
        assert len(said(found)) >= 1
        assert expected in said(found)[0]

        server.behave("/targets", listing(GOOD))
        assert names(section.after_asking()) == ["10.0.0.7:8000"]
        assert said(section.peek()) == []

        server.behave("/targets", behaviour)
        found = section.after_asking()
        assert section.have_changed() is False
        assert names(found) == ["10.0.0.7:8000"]
        assert expected in said(found)[0]
        section.ask()
        assert section.have_changed()  # each failure is one, for the count of them

        server.behave("/targets", listing([]))
        found = section.after_asking()
        assert (found.targets, found.problems) == ((), ())


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_server_that_drips_is_cut_off_at_the_deadline(part: str) -> None:
    slow = answers.drip(json.dumps(GOOD).encode(), interval_seconds=0.05, part=part, content_type=JSON)
    with serving(slow, http=HttpSettings(timeout_seconds=0.2)) as (_, section):
        (problem,) = section.after_asking().problems
        assert "0.2" in problem.what


def test_nothing_listens() -> None:
    with FaultServer({}) as server:
        section = ByHand(section_for(server))
    (problem,) = section.after_asking().problems
    assert "nothing listens on" in problem.what
    assert problem.fix == "Until it answers, it has no targets so far."


def test_a_million_targets_are_refused_by_size() -> None:
    million = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:80" for number in range(1_000_000)]
    body = json.dumps([{"targets": million}], separators=(",", ":")).encode()
    with serving(answers.page(body, JSON)) as (_, section):
        assert "the body exceeds 4194304 bytes" in said(section.after_asking())[0]
    with serving(answers.page(body, JSON), http=HttpSettings(30.0, 2**26)) as (_, section):
        assert said(section.after_asking()) == [
            "the answer has more than 400000 values. Let the server list fewer targets, or fewer labels."
        ]


def test_hosts_that_are_not_allowed_are_left_out_and_named() -> None:
    named = ["10.0.0.7:1", "11.0.0.1:1", "169.254.169.254:80", "localhost:1", "11.0.0.1:2", "a:1", "b:1", "c:1"]
    with serving(listing([{"targets": named}])) as (_, section):
        found = section.after_asking()
        assert names(found) == ["10.0.0.7:1"]
        assert said(found) == [
            "7 targets are left out, because hosts of this section does not allow "
            '"11.0.0.1", "169.254.169.254", "localhost", "a" and "b" and 1 more. '
            "Add the hosts or their networks to hosts, if they are meant."
        ]


def test_no_label_leads_beyond_the_allowed_hosts() -> None:
    group = {
        "targets": ["10.0.0.7:1"],
        "labels": {"__metrics_path__": "/@evil.example/", "__address__": "evil:1", "__scheme__": "https", "name": "x"},
    }
    with serving(listing([group])) as (server, section):
        found = section.after_asking()
        assert found.targets is None or {target.url for target in found.targets} <= {"https://10.0.0.7:1"}
        evil = (
            "10.0.0.7@evil:1",
            "evil:1/10.0.0.7:1",
            "10.0.0.7:1#@evil:2",
            "10.0.0.7:1?x",
            "[::1]:1",
            "evil\\@10.0.0.7:1",
        )
        for address in evil:
            server.behave("/targets", listing([{"targets": [address]}]))
            found = section.after_asking()
            assert all(target.url == "https://10.0.0.7:1" for target in found.targets or ())
            assert said(found)


def test_a_secret_over_http_is_warned_about() -> None:
    defaults = Target("", "", http=HttpSettings(bearer_token=Secret(env="T")))
    groups = [{"targets": ["10.0.0.7:1"]}, {"targets": ["10.0.0.8:1"], "labels": {"__scheme__": "https"}}]
    with serving(listing(groups), defaults=defaults) as (_, section):
        found = section.after_asking()
        assert found.warnings == (f"{found.name}: to 1 target a secret is sent over http; let the list say https",)


def test_the_servers_own_credentials_go_to_it_alone(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    http = HttpSettings(bearer_token=Secret(file=str(tmp_path / "token")), timeout_seconds=5.0)
    with serving(listing(GOOD), http=http) as (server, section):
        found = section.after_asking()
        assert server.requests[0].headers["authorization"] == "Bearer s3cret"
        assert found.targets[0].http == HttpSettings()
        (tmp_path / "token").write_text("rotated\n")
        server.behave("/targets", answers.status(401, b"s3cret and rotated are wrong\n"))
        problem = said(section.after_asking())[0]
        assert server.requests[-1].headers["authorization"] == "Bearer rotated"
        assert "rotated" not in problem
        (tmp_path / "token").unlink()
        assert "cannot be read" in said(section.after_asking())[0]
        assert len(server.requests) == 2  # nothing is asked without what should be sent


def test_the_same_answer_again_is_no_change() -> None:
    with serving(listing(GOOD)) as (server, section):
        section.after_asking()
        section.ask()
        assert section.have_changed() is False
        server.behave("/targets", answers.status(500))
        section.ask()
        assert section.have_changed()
        section.peek()
        server.behave("/targets", listing(GOOD))
        section.ask()
        assert section.have_changed()
        assert said(section.peek()) == []


class Running:
    """A section with its own thread."""

    def __init__(self, section: HttpDiscovery) -> None:
        self.section = SectionHttp(section, HOST, start=self._start)
        self.threads: list[threading.Thread] = []

    def _start(self, name: str, job: Callable[[], None]) -> None:
        self.threads.append(threading.Thread(target=job, name=name))
        self.threads[-1].start()

    def source(self, runtimes: Collection[str] = RUNTIMES) -> Source:
        (source,) = self.section.read(runtimes).sources
        return source

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: object) -> None:
        self.section.close()
        for thread in self.threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def test_it_asks_by_itself_until_it_is_closed() -> None:
    with FaultServer({"/targets": listing(GOOD)}) as server:
        with Running(section_for(server, refresh_seconds=0.1)) as running:
            assert server.requests == []  # nothing before the first reading
            assert running.source().problems == ()  # which does not wait for the server
            wait_until(lambda: names(running.source()) == ["10.0.0.7:8000"], "an answer")
            server.behave("/targets", listing([]))
            wait_until(lambda: running.source().targets == (), "the next answer")
            running.section.close()
            running.section.close()
        asked = len(server.requests)
        assert running.source().targets == ()
        assert (len(running.threads), len(server.requests)) == (1, asked)


def test_closing_does_not_wait_for_the_server() -> None:
    with FaultServer({"/targets": answers.silent()}) as server:
        section = SectionHttp(section_for(server, http=HttpSettings(timeout_seconds=600.0)), HOST)
        section.read(RUNTIMES)
        server.wait_for_requests(1)
        section.close()  # a hang would be seen here


def test_after_a_failure_it_asks_again_sooner_then_more_seldom() -> None:
    with serving(answers.status(500)) as (server, section):
        delays = []
        for _ in range(7):
            section.ask()
            delays.append(section.delay_seconds)
        assert delays == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0]
        server.behave("/targets", listing(GOOD))
        section.ask()
        assert section.delay_seconds == 60.0
    with serving(answers.status(500), refresh_seconds=2.0) as (_, section):
        section.ask()
        assert section.delay_seconds == 2.0


def test_tables_that_come_and_go_change_what_the_last_answer_says() -> None:
    known = (*RUNTIMES, "acme")
    groups = [{"targets": ["10.0.0.7:1"], "labels": {"runtime": "acme"}}]
    with FaultServer({"/targets": listing(groups)}) as server, Running(section_for(server)) as running:
        wait_until(lambda: names(running.source(known)) == ["10.0.0.7:1"], "the target")
        wait_until(lambda: said(running.source(RUNTIMES)), "the problem")
        assert names(running.source(RUNTIMES)) == ["10.0.0.7:1"]
        wait_until(lambda: not said(running.source(known)), "its end")
        assert len(server.requests) == 1


def test_a_section_with_other_settings_begins_with_what_was_known() -> None:
    groups = [{"targets": ["10.0.0.7:1", "11.0.0.7:1"]}]
    with serving(listing(groups), hosts=("*",)) as (server, section):
        assert names(section.after_asking()) == ["10.0.0.7:1", "11.0.0.7:1"]
        server.behave("/targets", answers.silent())
        asked = len(server.requests)
        assert names(ByHand(section_for(server), earlier=(section,)).peek()) == ["10.0.0.7:1"]
        assert ByHand(section_for(server, path="/other"), earlier=(section,)).peek().targets is None
        assert len(server.requests) == asked

"""List and watch over real HTTP: recorded conversations with a real API server, and what no real one does on demand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llm_serving_exporter.discovery.kubernetes import api as api_module
from llm_serving_exporter.discovery.kubernetes import mirror as mirror_module
from llm_serving_exporter.discovery.kubernetes.api import Account, Api, ApiError, Listing
from llm_serving_exporter.discovery.kubernetes.mirror import LONGEST_PAUSE_SECONDS, Mirror
from llm_serving_exporter.discovery.kubernetes.objects import PodRecord, decode_pod
from tests.support.builders.discovered_pods import Pod, plain_pod
from tests.support.rows import check_rows
from tests.support.servers.kube_replay import KubeReplay
from tests.support.servers.kube_script import (
    FAR_ON,
    Answer,
    Call,
    KubeScript,
    bookmark,
    events,
    page,
    refusal,
    write_kubeconfig,
)
from tests.support.waiting import wait_until

LISTING = Listing("kubernetes (all namespaces)", "pods", "/api/v1/pods", "of all namespaces", "Give it a ClusterRole.")


def keep(body: msgspec.Raw) -> tuple[tuple[str, str], PodRecord | None]:
    pod = decode_pod(body, ("keep",), ())
    return pod.key, pod if pod.labels.get("keep") != "no" else None


class Mirrored:
    """A mirror of a server's pods, which notes its pauses and makes none."""

    def __init__(self, folder: Path, server: Any) -> None:
        self.server, self.pauses = server, list[float]()
        self._stopped = threading.Event()
        account = Account(str(write_kubeconfig(folder, server.url)))
        self.mirror: Mirror[tuple[str, str], PodRecord] = Mirror(LISTING, lambda: Api(account), keep, self._pause)

    def _pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return self._stopped.wait(0.005)

    def stop(self) -> None:
        self._stopped.set()
        self.mirror.stop()
        wait_until(lambda: not self.mirror._thread.is_alive(), "the end of the mirror's thread")

    @property
    def records(self) -> Any:
        return self.mirror.copy().records

    @property
    def names(self) -> list[str]:
        return sorted(name for _, name in self.records or {})

    @property
    def problem(self) -> str:
        return " / ".join(map(str, self.mirror.copy().problems))

    def comes_to(self, *names: str) -> None:
        wait_until(lambda: self.names == [*names], f"the pods {names}", lambda: f"{self.names} {self.problem}")

    def says(self, text: str = "") -> str:
        """The problem that has this text, as soon as there is one."""
        wait_until(lambda: self.problem and text in self.problem, f"the problem {text}", lambda: self.problem)
        return self.problem


@contextmanager
def of_server(folder: Path, server: Any) -> Iterator[Mirrored]:
    with server:
        mirror = Mirrored(folder, server)
        mirror.mirror.start()
        try:
            yield mirror
        finally:
            mirror.stop()


def mirrored(folder: Path, *script: Answer, at: str = FAR_ON) -> Any:
    """A mirror of the pods of a server that answers so. Its thread has ended afterwards."""
    return of_server(folder, KubeScript(*script, at=at))


def named(*names: str, version: str = "10", token: str = "") -> Answer:
    """A page of such pods."""
    return page([plain_pod(name) for name in names], version, token)


def versioned(pod: Pod, version: int) -> Pod:
    return {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(version)}}


def added(name: str, version: int) -> tuple[str, Pod]:
    return "ADDED", versioned(plain_pod(name), version)


def writes(*pieces: bytes, told: tuple[tuple[str, Any], ...] = (), stays: bool = False) -> Answer:
    """A watch that tells these events and sends these bytes."""

    def answer(call: Call) -> None:
        events(*told, stays=False)(call)
        for piece in pieces:
            call.write(piece)
        if stays:
            call.stay()

    return answer


def drips(piece: bytes, every_seconds: float = 0.0) -> Answer:
    """An answer without an end."""

    def answer(call: Call) -> None:
        call.start()
        while not call.closing.wait(every_seconds):
            call.write(piece)

    return answer


def html(status: int) -> Answer:
    return lambda call: call.answer(status, b"<html>log in</html>", Content_Type="text/html; charset=utf-8")


GONE, ENDS = refusal(410, "too old"), events(stays=False)
TOO_OLD = events(
    ("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version: 10 (12)"}), stays=False
)
UNDECODED = {"kind": "Status", "code": 500, "message": "unable to decode an event from the watch stream"}


# --- recorded conversations ---------------------------------------------------------------------------------------


def test_a_recorded_conversation_is_carried_on_to_its_end(tmp_path: Path) -> None:
    with of_server(tmp_path, KubeReplay("changes")) as mirror:
        server = mirror.server
        wait_until(lambda: server.left == 0, "the end of the recording", lambda: str(server.strays))
        wait_until(lambda: len(server.asked) >= 7, "the watch after it", lambda: str(server.asked))
        assert (server.strays, mirror.problem) == ([], "")
        found = mirror.records
    assert len(found) == 14
    last = found["llm", "vllm-deployment-router-5d6c9f8b74-added"]
    assert last.address == "10.0.1.1"
    assert not any(container.crash_loops for container in last.containers)
    assert all(one.query["allowWatchBookmarks"] == "true" for one in server.asked if one.is_watch)


@pytest.mark.parametrize("name", ["too_old", "list_expired"])
def test_a_version_that_the_server_forgot_has_the_list_read_again(tmp_path: Path, name: str) -> None:
    with of_server(tmp_path, KubeReplay(name)) as mirror:
        server = mirror.server
        wait_until(lambda: server.left == 0, "the end of the recording", lambda: str(server.strays))
        wait_until(lambda: mirror.records, "the list")
        assert (server.strays, mirror.problem) == ([], "")


def test_a_right_that_is_missing_is_named_with_the_remedy(tmp_path: Path) -> None:
    with of_server(tmp_path, KubeReplay("forbidden")) as mirror:
        said = mirror.says()
        assert mirror.records is None
    assert said.startswith(
        "kubernetes (all namespaces): it may not list and watch pods of all namespaces: pods is forbidden: User "
    )
    assert 'cannot list resource "pods" in API group ""' in said
    assert said.endswith("Give it a ClusterRole.")


def test_an_account_that_is_not_known_is_said(tmp_path: Path) -> None:
    with of_server(tmp_path, KubeReplay("unauthorized")) as mirror:
        mirror.says("the API server does not accept the exporter's credentials. Check its service account")


# --- what is a problem, and what is known stays ---------------------------------------------------------------------

SECRET = "no user has the token t-1, sent as Bearer t-1"


@check_rows(
    ("script", "says", "known"),
    [
        *(
            ((named("a"), ENDS, GONE, lambda call, body=body: call.answer(200, body)), "sent what is no pods: ", ["a"])
            for body in (b"", b"<html>", b"[1]", b'{"items": 3, "metadata": {}}', b"\xff")
        ),
        # without the end of a line, as one that is answered to a list is without JSON
        ((named("a"), html(200)), "a watch ended in the middle of an event: <html>log in</html>", ["a"]),
        ((html(502),), "status 502 (text/html), which is no answer of an API server: something stands before it", []),
        ((named("a"), drips(b"x" * 1000)), "an event is longer than 10000 bytes", ["a"]),
        ((drips(b" " * 1000),), "a page of the list is larger than 10000 bytes", []),
        ((drips(b" ", 0.02),), "a page of the list takes longer than", []),
        ((named("a", token="same"),), "the list has no end", []),
        ((named("a", "b", "c"), events(added("d", 11))), "1 of the pods of all namespaces beyond 2 are left out", ["a", "b"]),
        ((refusal(403, SECRET),), "no user has the token ***, sent as ***", []),
    ],
)  # fmt: skip
def test_a_problem_is_said_and_what_is_known_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: tuple[Answer, ...], says: str, known: list[str]
) -> None:
    for name, bound in (("LONGEST_EVENT", 10_000), ("LARGEST_PAGE", 10_000), ("PAGE_SECONDS", 0.5)):
        monkeypatch.setattr(api_module, name, bound)
    monkeypatch.setattr(mirror_module, "MOST_RECORDS", 2)
    with mirrored(tmp_path, *script) as mirror:
        said = mirror.says(says)
        assert mirror.names == known
        assert {call.token for call in mirror.server.calls} == {"t-1"}
    assert "t-1" not in said


def test_what_is_known_stays_when_a_right_is_revoked(tmp_path: Path) -> None:
    forbidden = refusal(403, 'pods is forbidden: User "u" cannot watch resource "pods"')
    with mirrored(tmp_path, named("a"), events(bookmark("11"), stays=False), forbidden) as mirror:
        assert mirror.says().endswith("Give it a ClusterRole. What is known of them stays.")
        assert mirror.names == ["a"]
    # it goes on from where it was
    assert {call.query["resourceVersion"] for call in mirror.server.watches[1:]} == {"11"}


def test_a_server_that_is_away_and_comes_back(tmp_path: Path) -> None:
    with mirrored(tmp_path, named("a"), events()) as mirror:
        server = mirror.server
        wait_until(lambda: server.watches, "the watch")
        server.__exit__(None, None, None)
        mirror.says(f"pods of all namespaces cannot be followed: the API server {server.url}")
        assert mirror.names == ["a"]
        # for the end of the `with`
        server.__enter__()


def test_a_server_that_forgets_each_version_is_a_problem(tmp_path: Path) -> None:
    def answer(call: Call) -> None:
        (GONE if call.is_watch else named("a"))(call)

    with mirrored(tmp_path, answer) as mirror:
        mirror.says("cannot be followed: too old")
        assert mirror.names == ["a"]


def test_an_account_that_cannot_be_used_is_a_problem(tmp_path: Path) -> None:
    for text in ("", "clusters: 7", "{", "current-context: x\nclusters: []\ncontexts: []\n"):
        (tmp_path / "broken").write_text(text)
        with pytest.raises(ApiError, match=r"kubeconfig .*broken cannot be used"):
            Api(Account(str(tmp_path / "broken")))
    with pytest.raises(ApiError, match="the service account of the exporter's pod cannot be used"):
        Api(Account())


# --- what comes of it, without a problem ----------------------------------------------------------------------------


@check_rows(
    ("script", "names"),
    [
        # a problem that is over is gone
        ((refusal(500, "etcd is away"), named("a"), events()), ["a"]),
        # bytes that come one by one are one event
        ((named("a"), writes(*(bytes([byte]) for byte in b'{"type":"ADDED","object":%s}\n' % msgspec.json.encode(added("b", 11)[1])),
                             stays=True)), ["a", "b"]),
        # what is no event has the list read again, as an error in a watch and a version that a server cannot read do
        *(
            ((named("a"), writes(garbage, stays=True), named("b"), events()), ["b"])
            for garbage in (b"<html>\n", b"\xff\xfe\n", b"[]\n", b'{"type": 7, "object": {}}\n', b'{"type":"ADDED"}\n')
        ),
        ((named("a"), events(("ERROR", UNDECODED), stays=False), named("b"), events()), ["b"]),
        ((named("a"), refusal(400, "invalid resource version"), named("b", version="x-7"), events()), ["b"]),
        # two servers behind one address, of which one knows a version that the other one has not
        ((named("a", version="100"), events(added("x", 7)), named("b", version="9"), events(bookmark("10"))), ["b"]),
        # empty lines are no sign of life
        ((named("a"), drips(b"\n", 0.05), events(added("b", 12))), ["a", "b"]),
    ],
)  # fmt: skip
def test_what_is_known_after_these_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: tuple[Answer, ...], names: list[str]
) -> None:
    monkeypatch.setattr(api_module, "SILENCE_SECONDS", 0.5)
    with mirrored(tmp_path, *script) as mirror:
        mirror.comes_to(*names)
        wait_until(lambda: mirror.problem == "", "the end of every problem", lambda: mirror.problem)


def test_pages_are_put_together_and_what_is_not_kept_is_left_out(tmp_path: Path) -> None:
    unwanted = plain_pod("b", labels={"keep": "no"})
    first = page([plain_pod("a"), plain_pod("x", labels={"keep": "no"})], token="more")
    changes = events(("MODIFIED", versioned(unwanted, 13)))
    with mirrored(tmp_path, first, named("b", version="12"), changes) as mirror:
        mirror.comes_to("a")
    calls = mirror.server.calls
    assert [call.query.get("continue") for call in calls[:2]] == [None, "more"]
    assert mirror.server.watches[0].query["resourceVersion"] == "12"
    assert calls[0].headers["accept-encoding"] == "identity"


def test_a_list_that_expires_between_two_pages_is_read_again_and_the_old_one_stays_until_then(tmp_path: Path) -> None:
    script = (named("old"), ENDS, GONE, named("a", token="more"), refusal(410, "expired"), named("b"), events())
    seen: list[list[str]] = []
    with mirrored(tmp_path, *script) as mirror:
        wait_until(lambda: seen.append(mirror.names) or mirror.names == ["b"], "the second list")
    assert ["a"] not in seen


def test_a_connection_that_breaks_in_the_middle_of_an_event_loses_none(tmp_path: Path) -> None:
    breaks = writes(b'{"type":"ADDED","object":{"metadata":{"na', told=(added("b", 11),))
    with mirrored(tmp_path, named("a"), breaks, events(added("c", 12))) as mirror:
        mirror.comes_to("a", "b", "c")
    assert mirror.server.watches[1].query["resourceVersion"] == "11"


def test_a_pod_that_cannot_be_made_out_costs_no_other_one(tmp_path: Path) -> None:
    odd = {"metadata": {"name": "odd", "namespace": "llm", "uid": "u"}, "spec": {"containers": "none"}}
    told = (("ADDED", {**odd, "spec": {"nodeName": 7}}), added("b", 12))
    with mirrored(tmp_path, page([odd, plain_pod("a")]), events(*told)) as mirror:
        mirror.comes_to("a", "b")
        assert "one of the pods of all namespaces cannot be made out: " in mirror.problem


def test_a_watch_that_is_silent_for_too_long_is_begun_again_without_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "SILENCE_SECONDS", 0.1)
    again = events(added("b", 12), bookmark("13"))
    with mirrored(tmp_path, named("a"), events(bookmark("11")), again) as mirror:
        mirror.comes_to("a", "b")
        assert mirror.problem == ""
    assert mirror.server.watches[1].query["resourceVersion"] == "11"


def test_a_list_that_is_too_old_before_its_end_has_larger_pages_the_next_time(tmp_path: Path) -> None:
    def slow(call: Call) -> None:
        if call.is_watch:
            events()(call)
        elif int(call.query["limit"]) >= 2500:
            named("a", "b")(call)
        elif "continue" in call.query:
            refusal(410, "The provided continue parameter is too old")(call)
        else:
            named("a", token="more")(call)

    with mirrored(tmp_path, slow) as mirror:
        mirror.comes_to("a", "b")
        lists = [call.query for call in mirror.server.calls if not call.is_watch and "continue" not in call.query]
    assert [query["limit"] for query in lists] == ["100", "500", "2500"]


def test_a_mirror_that_was_never_started_can_be_stopped() -> None:
    mirror = Mirror(LISTING, lambda: Api(Account()), keep)
    mirror.stop()
    mirror.stop()


def test_the_clock_of_the_server_is_known(tmp_path: Path) -> None:
    with mirrored(tmp_path, page([]), events()) as mirror:
        wait_until(lambda: mirror.records == {}, "the list")
        offset = mirror.mirror.copy().clock_offset_seconds
    # a date has no fractions
    assert offset is not None
    assert abs(offset + time.monotonic() - time.time()) < 30


# --- pauses ---------------------------------------------------------------------------------------------------------


def test_an_outage_does_not_keep_a_list_waiting_that_is_too_old_after_it(tmp_path: Path) -> None:
    away = [refusal(500, "away")] * 6
    with mirrored(tmp_path, named("a"), ENDS, *away, TOO_OLD, named("b", version="12"), events()) as mirror:
        mirror.comes_to("b")
    assert mirror.pauses[6] > 5, "the outage has taught it to wait"
    assert mirror.pauses[7] < 1, "the list does not"


@check_rows(
    ("script", "number", "holds"),
    [
        # the server forgets what it has just listed: it is left alone
        ((*(page([]), TOO_OLD) * 6, page([]), events()), 6, lambda pauses: pauses[0] < 1.1 and pauses[5] > 5),
        # pauses grow to a bound, and a server may ask for longer ones
        (
            (refusal(429, "slow down", Retry_After="45"), refusal(500, "away")), 13,
            lambda pauses: pauses[0] == 45.0 and pauses[1] < 5 < pauses[11] and max(pauses[1:12]) <= LONGEST_PAUSE_SECONDS,
        ),
        # watches that end early keep a new pod waiting for seconds only, nor is the server asked without a pause
        ((page([]), ENDS), 13, lambda pauses: max(pauses) <= 4.0 and pauses[-1] >= 2.0),
        # any wish to be left alone is survived
        *(
            ((refusal(429, "slow down", Retry_After=wait),), 2, lambda pauses: max(pauses) <= 60.0)
            for wait in ("\u00b2", "-1", "1e9", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999999999999")
        ),
    ],
)  # fmt: skip
def test_pauses(tmp_path: Path, script: tuple[Answer, ...], number: int, holds: Callable[[list[float]], bool]) -> None:
    with mirrored(tmp_path, *script) as mirror:
        wait_until(lambda: len(mirror.pauses) >= number, "pauses")
    assert holds(mirror.pauses), mirror.pauses


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_a_rotated_token_is_read_again(tmp_path: Path) -> None:
    def guarded(call: Call) -> None:
        good = (tmp_path / "token").read_text() == call.token == "t-2"
        (events(added("b", 12)) if good else refusal(401, "Unauthorized"))(call)

    with mirrored(tmp_path, named("a"), ENDS, guarded) as mirror:
        mirror.says("does not accept the exporter's credentials")
        (tmp_path / "token").write_text("t-2")
        mirror.comes_to("a", "b")
        assert mirror.problem == ""
        assert "t-1" in {call.token for call in mirror.server.calls}


def test_a_token_is_read_before_it_is_refused(tmp_path: Path) -> None:
    """A server that extends tokens takes an old one for a year, and counts who uses it."""
    with mirrored(tmp_path, page([]), ENDS) as mirror:
        wait_until(lambda: mirror.server.watches, "a watch")
        (tmp_path / "token").write_text("t-2\n")
        wait_until(lambda: mirror.server.watches[-1].token == "t-2", "the new token")


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "has no token in it"), (b"\xff\xfe", "cannot be read"), (b"a\nb", "has no token")]
)
def test_a_token_file_that_is_no_good_is_said_and_read_again(tmp_path: Path, content: bytes, said: str) -> None:
    with mirrored(tmp_path, named("a"), ENDS) as mirror:
        mirror.comes_to("a")
        (tmp_path / "token").write_bytes(content)
        # it may be looked at between its being emptied and written
        mirror.says(said)
        (tmp_path / "token").unlink()
        mirror.says("cannot be read: [Errno 2]")
        (tmp_path / "token").write_text("t-3")
        wait_until(lambda: mirror.problem == "", "a good one")
        assert mirror.names == ["a"]


# --- servers that are not what they were --------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["silence", "outage"])
def test_a_server_that_was_restored_from_a_backup_is_listed_anew_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """It takes a watch from a version that is still to come and is silent (measured: kube-apiserver 1.34)."""
    monkeypatch.setattr(api_module, "SILENCE_SECONDS", 0.1 if trouble == "silence" else 60.0)
    ahead = (bookmark("500"),)
    breaks = events(*ahead) if trouble == "silence" else writes(b'{"type":"ADD', told=ahead)
    with mirrored(tmp_path, named("a"), breaks, named("b", version="20"), events(bookmark("21")), at="20") as mirror:
        mirror.comes_to("b")
        wait_until(lambda: len(mirror.server.watches) > 1, "the next watch")
        assert mirror.server.watches[1].query["resourceVersion"] == "20"
        # of all pods, so that it costs the server one
        assert mirror.server.checks[0].query == {"limit": "1"}


def test_a_server_that_is_as_far_as_before_or_further_is_followed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "SILENCE_SECONDS", 0.05)
    with mirrored(tmp_path, named("a"), events(bookmark("500")), at="500") as mirror:
        wait_until(lambda: len(mirror.server.checks) >= 3, "watches that are silent")
        assert mirror.names == ["a"]
    assert not [call for call in mirror.server.calls[1:] if not call.is_watch], "the list was read once"

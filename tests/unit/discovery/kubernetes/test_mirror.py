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
from tests.support.builders.discovered_pods import plain_pod
from tests.support.rows import check_rows
from tests.support.servers.kube_replay import KubeReplay
from tests.support.servers.kube_script import Call, KubeScript, bookmark, events, page, refusal, write_kubeconfig
from tests.support.waiting import wait_until

Pods = Mirror[tuple[str, str], PodRecord]
LISTING = Listing("kubernetes (all namespaces)", "pods", "/api/v1/pods", "of all namespaces", "Give it a ClusterRole.")


def keep(body: msgspec.Raw) -> tuple[tuple[str, str], PodRecord | None]:
    pod = decode_pod(body, ("keep",), ())
    return pod.key, pod if pod.labels.get("keep") != "no" else None


@contextmanager
def mirrored(folder: Path, url: str, pauses: list[float] | None = None) -> Iterator[Pods]:
    """A mirror of this server's pods, which makes no pauses. Its thread has ended afterwards."""
    account = Account(str(write_kubeconfig(folder, url)))

    def pause(seconds: float) -> bool:
        if pauses is not None:
            pauses.append(seconds)
        return stopped.wait(0.005)

    stopped = threading.Event()
    mirror: Pods = Mirror(LISTING, lambda: Api(account), keep, pause)
    mirror.start()
    try:
        yield mirror
    finally:
        stopped.set()
        mirror.stop()
        wait_until(lambda: not mirror._thread.is_alive(), "the end of the mirror's thread")


def names(mirror: Pods) -> list[str]:
    return sorted(name for _, name in mirror.copy().records or {})


def problem_of(mirror: Pods) -> str:
    return " / ".join(map(str, mirror.copy().problems))


def versioned(pod: dict[str, Any], version: int) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(version)}}


def test_a_recorded_conversation_is_carried_on_to_its_end(tmp_path: Path) -> None:
    with KubeReplay("changes") as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: server.left == 0, "the end of the recording", lambda: str(server.strays))
        wait_until(lambda: len(server.asked) >= 7, "the watch after it", lambda: str(server.asked))
        assert (server.strays, problem_of(mirror)) == ([], "")
        found = mirror.copy().records or {}
    assert len(found) == 14
    added = found["llm", "vllm-deployment-router-5d6c9f8b74-added"]
    assert added.address == "10.0.1.1"
    assert not any(container.crash_loops for container in added.containers)
    assert all(one.query["allowWatchBookmarks"] == "true" for one in server.asked if one.is_watch)


@pytest.mark.parametrize("name", ["too_old", "list_expired"])
def test_a_version_that_the_server_forgot_has_the_list_read_again(tmp_path: Path, name: str) -> None:
    with KubeReplay(name) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: server.left == 0, "the end of the recording", lambda: str(server.strays))
        wait_until(lambda: mirror.copy().records, "the list")
        assert (server.strays, problem_of(mirror)) == ([], "")


def test_a_right_that_is_missing_is_named_with_the_remedy(tmp_path: Path) -> None:
    with KubeReplay("forbidden") as server, mirrored(tmp_path, server.url) as mirror:
        said = wait_until(lambda: problem_of(mirror), "the problem")
        assert mirror.copy().records is None
    assert said.startswith(
        "kubernetes (all namespaces): it may not list and watch pods of all namespaces: pods is forbidden: User "
    )
    assert 'cannot list resource "pods" in API group ""' in said
    assert said.endswith("Give it a ClusterRole.")


def test_a_refusal_that_repeats_the_token_is_shown_without_it(tmp_path: Path) -> None:
    with KubeScript(refusal(403, "no user has the token t-1, sent as Bearer t-1")) as server:
        with mirrored(tmp_path, server.url) as mirror:
            said = wait_until(lambda: problem_of(mirror), "the problem")
        assert {call.token for call in server.calls} == {"t-1"}
    assert "no user has the token ***, sent as ***" in said
    assert "t-1" not in said


def test_what_is_known_stays_when_a_right_is_revoked(tmp_path: Path) -> None:
    forbidden = refusal(403, 'pods is forbidden: User "u" cannot watch resource "pods"')
    with KubeScript(page([plain_pod("a")]), events(bookmark("11"), stays=False), forbidden) as server:
        with mirrored(tmp_path, server.url) as mirror:
            said = wait_until(lambda: problem_of(mirror), "the problem")
            assert names(mirror) == ["a"]
        assert said.endswith("Give it a ClusterRole. What is known of them stays.")
        # it goes on from where it was
        assert {call.query["resourceVersion"] for call in server.watches[1:]} == {"11"}


def test_a_problem_that_is_over_is_gone(tmp_path: Path) -> None:
    with (
        KubeScript(refusal(500, "etcd is away"), page([plain_pod("a")]), events()) as server,
        mirrored(tmp_path, server.url) as mirror,
    ):
        wait_until(lambda: names(mirror) == ["a"], "the list")
        assert problem_of(mirror) == ""


def test_pages_are_put_together_and_what_is_not_kept_is_left_out(tmp_path: Path) -> None:
    unwanted = plain_pod("x", labels={"keep": "no"})
    pages = (page([plain_pod("a"), unwanted], token="more"), page([plain_pod("b")], version="12"))
    with KubeScript(*pages, events(("MODIFIED", versioned(plain_pod("b", labels={"keep": "no"}), 13)))) as server:
        with mirrored(tmp_path, server.url) as mirror:
            wait_until(lambda: names(mirror) == ["a"], "the change")
        assert [call.query.get("continue") for call in server.calls[:2]] == [None, "more"]
        assert server.watches[0].query["resourceVersion"] == "12"
        assert server.calls[0].headers["accept-encoding"] == "identity"


def test_a_list_that_expires_between_two_pages_is_read_again_and_the_old_one_stays_until_then(tmp_path: Path) -> None:
    script = (
        page([plain_pod("old")]), events(stays=False), refusal(410, "too old"),
        page([plain_pod("a")], token="more"), refusal(410, "expired"), page([plain_pod("b")]), events(),
    )  # fmt: skip
    seen: list[list[str]] = []
    with KubeScript(*script) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: seen.append(names(mirror)) or names(mirror) == ["b"], "the second list")
    assert ["a"] not in seen


def test_a_connection_that_breaks_in_the_middle_of_an_event_loses_none(tmp_path: Path) -> None:
    def breaks(call: Call) -> None:
        call.start()
        call.tell("ADDED", versioned(plain_pod("b"), 11))
        call.write(b'{"type":"ADDED","object":{"metadata":{"na')

    again = events(("ADDED", versioned(plain_pod("c"), 12)))
    with KubeScript(page([plain_pod("a")]), breaks, again) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["a", "b", "c"], "every pod", lambda: problem_of(mirror))
        assert server.watches[1].query["resourceVersion"] == "11"


def test_bytes_that_come_one_by_one_are_one_event(tmp_path: Path) -> None:
    def drips(call: Call) -> None:
        call.start()
        for byte in msgspec.json.encode({"type": "ADDED", "object": versioned(plain_pod("b"), 11)}) + b"\n":
            call.write(bytes([byte]))
        call.stay()

    with KubeScript(page([]), drips) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["b"], "the event")


@check_rows("garbage", [b"<html>\n", b"\xff\xfe\n", b"[]\n", b'{"type": 7, "object": {}}\n', b'{"type":"ADDED"}\n'])
def test_what_is_no_event_has_the_list_read_again(tmp_path: Path, garbage: bytes) -> None:
    def talks(call: Call) -> None:
        call.start()
        call.write(garbage)
        call.stay()

    script = (page([plain_pod("a")]), talks, page([plain_pod("b")]), events())
    with KubeScript(*script) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["b"], "the next list")


@check_rows("body", [b"", b"<html>", b"[1]", b'{"items": 3, "metadata": {}}', b"\xff"])
def test_what_is_no_list_is_a_problem_and_what_is_known_stays(tmp_path: Path, body: bytes) -> None:
    gone = refusal(410, "too old")
    script = (page([plain_pod("a")]), events(stays=False), gone, lambda call: call.answer(200, body))
    with KubeScript(*script) as server, mirrored(tmp_path, server.url) as mirror:
        said = wait_until(lambda: problem_of(mirror), "the problem")
        assert "the API server sent what is no pods: " in said
        assert names(mirror) == ["a"]


def test_a_pod_that_cannot_be_made_out_costs_no_other_one(tmp_path: Path) -> None:
    odd = {"metadata": {"name": "odd", "namespace": "llm", "uid": "u"}, "spec": {"containers": "none"}}
    told = (("ADDED", {**odd, "spec": {"nodeName": 7}}), ("ADDED", versioned(plain_pod("b"), 12)))
    with KubeScript(page([odd, plain_pod("a")]), events(*told)) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["a", "b"], "the others")
        assert "one of the pods of all namespaces cannot be made out: " in problem_of(mirror)


def test_an_endless_event_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "LONGEST_EVENT", 10_000)

    def endless(call: Call) -> None:
        call.start()
        while not call.closing.is_set():
            call.write(b"x" * 1000)

    with KubeScript(page([plain_pod("a")]), endless) as server, mirrored(tmp_path, server.url) as mirror:
        assert "an event is longer than 10000 bytes" in wait_until(lambda: problem_of(mirror), "the problem")
        assert names(mirror) == ["a"]


def test_an_endless_page_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "LARGEST_PAGE", 10_000)

    def endless(call: Call) -> None:
        call.start()
        while not call.closing.is_set():
            call.write(b" " * 1000)

    with KubeScript(endless) as server, mirrored(tmp_path, server.url) as mirror:
        assert "a page of the list is larger than 10000 bytes" in wait_until(lambda: problem_of(mirror), "the problem")


def test_more_pods_than_are_kept_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "MOST_RECORDS", 2)
    added = events(("ADDED", versioned(plain_pod("d"), 11)))
    with (
        KubeScript(page([plain_pod(name) for name in "abc"]), added) as server,
        mirrored(tmp_path, server.url) as mirror,
    ):
        said = wait_until(lambda: problem_of(mirror), "the problem")
        assert "1 of the pods of all namespaces beyond 2 are left out" in said
        assert names(mirror) == ["a", "b"]


def test_a_watch_that_is_silent_for_too_long_is_begun_again_without_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "SILENCE_SECONDS", 0.1)
    again = events(("ADDED", versioned(plain_pod("b"), 12)), bookmark("13"))
    with KubeScript(page([plain_pod("a")]), events(bookmark("11")), again) as server:
        with mirrored(tmp_path, server.url) as mirror:
            wait_until(lambda: names(mirror) == ["a", "b"], "the next watch")
            assert problem_of(mirror) == ""
        assert server.watches[1].query["resourceVersion"] == "11"


def test_a_rotated_token_is_read_again(tmp_path: Path) -> None:
    def guarded(answer: Callable[[Call], None]) -> Callable[[Call], None]:
        def check(call: Call) -> None:
            good = (tmp_path / "token").read_text() == call.token == "t-2"
            (answer if good else refusal(401, "Unauthorized"))(call)

        return check

    script = (page([plain_pod("a")]), events(stays=False), guarded(events(("ADDED", versioned(plain_pod("b"), 12)))))
    with KubeScript(*script) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: "does not accept the exporter's credentials" in problem_of(mirror), "the refusal")
        (tmp_path / "token").write_text("t-2")
        wait_until(lambda: names(mirror) == ["a", "b"], "the next watch")
        assert problem_of(mirror) == ""
        assert "t-1" in {call.token for call in server.calls}


def test_a_server_that_is_away_and_comes_back(tmp_path: Path) -> None:
    with KubeScript(page([plain_pod("a")]), events()) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: server.watches, "the watch")
        server.__exit__(None, None, None)
        said = wait_until(lambda: problem_of(mirror), "the problem")
        assert f"pods of all namespaces cannot be followed: the API server {server.url}" in said
        assert names(mirror) == ["a"]
        # for the end of the `with`
        server.__enter__()


def told_too_old(call: Call) -> None:
    """The server takes the watch and says then that it does not know its version."""
    call.start()
    call.tell("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version: 10 (12)"})


def test_an_outage_does_not_keep_a_list_waiting_that_is_too_old_after_it(tmp_path: Path) -> None:
    pauses: list[float] = []
    away = [refusal(500, "away")] * 6
    script = (page([plain_pod("a")]), events(stays=False), *away, told_too_old, page([plain_pod("b")], "12"), events())
    with KubeScript(*script) as server, mirrored(tmp_path, server.url, pauses) as mirror:
        wait_until(lambda: names(mirror) == ["b"], "the new list")
    assert pauses[6] > 5, "the outage has taught it to wait"
    assert pauses[7] < 1, "the list does not"


def test_a_server_that_forgets_what_it_has_just_listed_is_left_alone(tmp_path: Path) -> None:
    pauses: list[float] = []
    script = [answer for _ in range(6) for answer in (page([]), told_too_old)]
    with KubeScript(*script, page([]), events()) as server, mirrored(tmp_path, server.url, pauses):
        wait_until(lambda: len(pauses) >= 6, "pauses")
    assert pauses[0] < 1.1
    assert pauses[5] > 5


def test_pauses_grow_to_a_bound_and_a_server_may_ask_for_longer_ones(tmp_path: Path) -> None:
    pauses: list[float] = []
    script = (refusal(429, "slow down", Retry_After="45"), refusal(500, "away"))
    with KubeScript(*script) as server, mirrored(tmp_path, server.url, pauses):
        wait_until(lambda: len(pauses) > 12, "pauses")
    assert pauses[0] == 45.0
    later = pauses[1:12]
    assert all(pause <= LONGEST_PAUSE_SECONDS for pause in later)
    assert later[0] < 5 < later[-1]


def test_a_server_that_forgets_each_version_is_a_problem(tmp_path: Path) -> None:
    def answer(call: Call) -> None:
        (refusal(410, "too old") if call.is_watch else page([plain_pod("a")]))(call)

    with KubeScript(answer) as server, mirrored(tmp_path, server.url, []) as mirror:
        wait_until(lambda: "cannot be followed: too old" in problem_of(mirror), "the problem")
        assert names(mirror) == ["a"]


def test_an_account_that_cannot_be_used_is_a_problem(tmp_path: Path) -> None:
    for text in ("", "clusters: 7", "{", "current-context: x\nclusters: []\ncontexts: []\n"):
        (tmp_path / "broken").write_text(text)
        with pytest.raises(ApiError, match=r"kubeconfig .*broken cannot be used"):
            Api(Account(str(tmp_path / "broken")))
    with pytest.raises(ApiError, match="the service account of the exporter's pod cannot be used"):
        Api(Account())


def test_a_mirror_that_was_never_started_can_be_stopped() -> None:
    mirror: Pods = Mirror(LISTING, lambda: Api(Account()), keep)
    mirror.stop()
    mirror.stop()


# --- servers that are not what they were --------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["silence", "outage"])
def test_a_server_that_was_restored_from_a_backup_is_listed_anew_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """It takes a watch from a version that is still to come and is silent (measured: kube-apiserver 1.34)."""
    monkeypatch.setattr(api_module, "SILENCE_SECONDS", 0.1 if trouble == "silence" else 60.0)

    def breaks(call: Call) -> None:
        call.start()
        call.tell(*bookmark("500"))
        if trouble == "silence":
            call.stay()
        call.write(b'{"type":"ADD')

    script = (page([plain_pod("a")]), breaks, page([plain_pod("b")], version="20"), events(bookmark("21")))
    with KubeScript(*script, at="20") as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["b"], "what there is now", lambda: str([c.query for c in server.calls]))
        wait_until(lambda: len(server.watches) > 1, "the next watch")
        assert server.watches[1].query["resourceVersion"] == "20"
        # of all pods, so that it costs the server one
        assert server.checks[0].query == {"limit": "1"}


def test_a_server_that_is_as_far_as_before_or_further_is_followed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "SILENCE_SECONDS", 0.05)
    with KubeScript(page([plain_pod("a")]), events(bookmark("500")), at="500") as server:
        with mirrored(tmp_path, server.url) as mirror:
            wait_until(lambda: len(server.checks) >= 3, "watches that are silent")
            assert names(mirror) == ["a"]
        assert not [call for call in server.calls[1:] if not call.is_watch], "the list was read once"


def test_two_servers_behind_one_address_that_are_not_equally_far(tmp_path: Path) -> None:
    """One knows a version that the other one has not, as where two clusters stand in for each other."""
    behind = events(("ADDED", versioned(plain_pod("x"), 7)))
    script = (
        page([plain_pod("a")], version="100"),
        behind,
        page([plain_pod("b")], version="9"),
        events(bookmark("10")),
    )
    with KubeScript(*script) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["b"], "the list of the other one")
        assert problem_of(mirror) == ""
        assert "x" not in names(mirror)


def test_an_error_in_a_watch_has_the_list_read_again(tmp_path: Path) -> None:
    def fails(call: Call) -> None:
        call.start()
        call.tell(
            "ERROR", {"kind": "Status", "code": 500, "message": "unable to decode an event from the watch stream"}
        )

    script = (page([plain_pod("a")]), fails, page([plain_pod("b")]), events())
    with KubeScript(*script) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["b"], "the next list")


def test_a_version_that_a_server_cannot_read_has_the_list_read_again(tmp_path: Path) -> None:
    script = (page([plain_pod("a")]), refusal(400, "invalid resource version"), page([plain_pod("b")], "x-7"), events())
    with KubeScript(*script) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["b"], "the next list")


def test_watches_that_end_early_keep_a_new_pod_waiting_for_seconds_only(tmp_path: Path) -> None:
    pauses: list[float] = []
    with KubeScript(page([]), events(stays=False)) as server, mirrored(tmp_path, server.url, pauses) as mirror:
        wait_until(lambda: len(pauses) > 12, "pauses")
        assert problem_of(mirror) == ""
    assert max(pauses) <= 4.0
    assert pauses[-1] >= 2.0, "nor is the server asked without a pause"


def test_a_watch_that_is_a_page_of_a_proxy_is_a_problem(tmp_path: Path) -> None:
    """Without the end of a line, as one that is answered to a list is without JSON."""
    html = lambda call: call.answer(200, b"<html>log in</html>", Content_Type="text/html")  # noqa: E731
    with KubeScript(page([plain_pod("a")]), html) as server, mirrored(tmp_path, server.url) as mirror:
        said = wait_until(lambda: problem_of(mirror), "the problem")
        assert "a watch ended in the middle of an event: <html>log in</html>" in said
        assert names(mirror) == ["a"]


def test_a_refusal_by_what_stands_before_the_server_is_said_as_such(tmp_path: Path) -> None:
    bad = lambda call: call.answer(502, b"<html>Bad Gateway</html>", Content_Type="text/html; charset=utf-8")  # noqa: E731
    with KubeScript(bad) as server, mirrored(tmp_path, server.url) as mirror:
        said = wait_until(lambda: problem_of(mirror), "the problem")
    assert "status 502 (text/html), which is no answer of an API server: something stands before it" in said


@check_rows("wait", ["\u00b2", "-1", "1e9", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999999999999"])
def test_any_wish_to_be_left_alone_is_survived(tmp_path: Path, wait: str) -> None:
    pauses: list[float] = []
    refused = refusal(429, "slow down", Retry_After=wait)
    with KubeScript(refused) as server, mirrored(tmp_path, server.url, pauses) as mirror:
        wait_until(lambda: len(pauses) > 1, "pauses")
        assert "slow down" in problem_of(mirror)
    assert all(pause <= 60.0 for pause in pauses)


def test_a_list_that_is_too_old_before_its_end_has_larger_pages_the_next_time(tmp_path: Path) -> None:
    def slow(call: Call) -> None:
        if call.is_watch:
            events()(call)
        elif int(call.query["limit"]) >= 2500:
            page([plain_pod("a"), plain_pod("b")])(call)
        elif "continue" in call.query:
            refusal(410, "The provided continue parameter is too old")(call)
        else:
            page([plain_pod("a")], token="more")(call)

    with KubeScript(slow) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["a", "b"], "the list")
        lists = [call.query for call in server.calls if not call.is_watch and "continue" not in call.query]
        assert [query["limit"] for query in lists] == ["100", "500", "2500"]


def test_a_list_without_an_end_is_left(tmp_path: Path) -> None:
    with KubeScript(page([plain_pod("a")], token="same")) as server, mirrored(tmp_path, server.url) as mirror:
        assert "the list has no end" in wait_until(lambda: problem_of(mirror), "the problem")


def test_empty_lines_are_no_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "SILENCE_SECONDS", 0.2)

    def drips(call: Call) -> None:
        call.start()
        while not call.closing.wait(0.05):
            call.write(b"\n")

    script = (page([plain_pod("a")]), drips, events(("ADDED", versioned(plain_pod("b"), 12))))
    with KubeScript(*script) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["a", "b"], "the next watch")


def test_a_page_that_drips_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PAGE_SECONDS", 0.2)

    def drips(call: Call) -> None:
        call.start()
        while not call.closing.wait(0.02):
            call.write(b" ")

    with KubeScript(drips) as server, mirrored(tmp_path, server.url) as mirror:
        assert "a page of the list takes longer than" in wait_until(lambda: problem_of(mirror), "the problem")


def test_a_token_is_read_before_it_is_refused(tmp_path: Path) -> None:
    """A server that extends tokens takes an old one for a year, and counts who uses it."""
    ends = events(stays=False)
    with KubeScript(page([]), ends) as server, mirrored(tmp_path, server.url):
        wait_until(lambda: server.watches, "a watch")
        (tmp_path / "token").write_text("t-2\n")
        wait_until(lambda: server.watches[-1].token == "t-2", "the new token")


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "has no token in it"), (b"\xff\xfe", "cannot be read"), (b"a\nb", "has no token")]
)
def test_a_token_file_that_is_no_good_is_said_and_read_again(tmp_path: Path, content: bytes, said: str) -> None:
    with KubeScript(page([plain_pod("a")]), events(stays=False)) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: names(mirror) == ["a"], "the list")
        (tmp_path / "token").write_bytes(content)
        # it may be looked at between its being emptied and written
        wait_until(lambda: said in problem_of(mirror), "the problem")
        (tmp_path / "token").unlink()
        wait_until(lambda: "cannot be read: [Errno 2]" in problem_of(mirror), "that it is gone")
        (tmp_path / "token").write_text("t-3")
        wait_until(lambda: problem_of(mirror) == "", "a good one")
        assert names(mirror) == ["a"]


def test_the_clock_of_the_server_is_known(tmp_path: Path) -> None:
    with KubeScript(page([]), events()) as server, mirrored(tmp_path, server.url) as mirror:
        wait_until(lambda: mirror.copy().records == {}, "the list")
        offset = mirror.copy().clock_offset_seconds
    # a date has no fractions
    assert offset is not None
    assert abs(offset + time.monotonic() - time.time()) < 30

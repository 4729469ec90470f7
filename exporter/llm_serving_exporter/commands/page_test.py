"""Command `page-test`: one marked test page, to PagerDuty itself or the whole way through an Alertmanager."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from llm_serving_exporter.clients.http import HttpSession, SecretError, ask, line, new_session, read_secret
from llm_serving_exporter.errors import ConfigError, PageError, Problem
from llm_serving_exporter.model.target import Secret
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.document import parse_yaml
from llm_serving_exporter.settings.flags import CommandParser, FlagReader, add_rows
from llm_serving_exporter.settings.kinds import Kind, format_duration, parse_duration, parse_url
from llm_serving_exporter.settings.problems import InvalidValueError, Place, Scalar, shown
from llm_serving_exporter.terminal import print_line

# --- How long an Alertmanager waits for more alerts of a group before it notifies: its own configuration -> seconds.


# of a route that says nothing, nor any above it (prometheus.io, docs/alerting/latest/configuration, "route")
DEFAULT_SECONDS = 30.0


def find_group_wait(configuration: str, receivers: Collection[str]) -> float | None:
    """The longest `group_wait` of the routes that lead to any of these receivers, in seconds.

    `configuration`: YAML, as Alertmanager's status has it. None where it is not such a configuration, or no route leads there.
    """
    problems: list[Problem] = []
    tree = parse_yaml(configuration, Place("alertmanager.yml", "", problems))
    if problems or not isinstance(tree, dict):
        return None
    waits = (
        seconds for receiver, seconds in _walk_routes(tree.get("route"), "", DEFAULT_SECONDS) if receiver in receivers
    )
    return max(waits, default=None)


def _walk_routes(route: Any, receiver: str, seconds: float) -> Iterator[tuple[str, float]]:
    """Receiver and wait of each route; a route has those of the one above it where it says nothing."""
    if not isinstance(route, dict):
        return
    receiver = _read_text(route, "receiver") or receiver
    with suppress(InvalidValueError):
        seconds = parse_duration(_read_text(route, "group_wait") or "")
    yield receiver, seconds
    below = route.get("routes")
    for inner in below if isinstance(below, list) else ():
        yield from _walk_routes(inner, receiver, seconds)


def _read_text(route: dict[str, Any], key: str) -> str | None:
    node = route.get(key)
    return node.text if isinstance(node, Scalar) else None


# --- The command


PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
ALERT = "LLMServingPageTest"
# developer.pagerduty.com, docs/events-api-v2/trigger-events
KEY_CHARACTERS = 32
# an Alertmanager first waits for more alerts of the group (group_wait, 15s in the example); one that is over by then is never sent
WAIT_SECONDS, WAIT_THROUGH_ALERTMANAGER_SECONDS, LONGEST_WAIT_SECONDS = 5.0, 300.0, 86_400.0
# a wait shorter than group_wait and the first of these becomes group_wait and the second
_FOR_THE_FIRST_NOTIFICATION_SECONDS, _AFTER_A_LONG_GROUP_WAIT_SECONDS = 5.0, 60.0

_EPILOG = """examples:
  llm-serving-exporter page-test --routing-key-file /etc/alertmanager/secrets/pagerduty-routing-key
  llm-serving-exporter page-test --alertmanager.url http://localhost:9093

It really pages whoever is on call for the service. Through Alertmanager the whole way is tried: routes, groups, templates, key."""

Pause = Callable[[float], None]


def run(words: Sequence[str], pause: Pause = time.sleep) -> int:
    """Sends the page and, unless told otherwise, its end; 0 when all of it was taken. `pause` waits so many seconds.

    Raises ConfigError for arguments or a key file that cannot work, PageError where PagerDuty or Alertmanager does not take the page.
    """
    arguments = _parser().parse_args(words)
    flags = FlagReader(arguments)
    url, alertmanager = flags.value("--pagerduty.url", _URL), flags.value("--alertmanager.url", _URL)
    wait = flags.value("--wait", kinds.DURATION)
    if wait is not None and wait > LONGEST_WAIT_SECONDS:
        longest = format_duration(LONGEST_WAIT_SECONDS)
        flags.refuse("--wait", f"{shown(arguments.wait)} is too long", f"Write {longest} or less.")
    key = _read_key(arguments.routing_key_file, flags) if arguments.routing_key_file is not None else None
    if (arguments.routing_key_file is None) == (arguments.alertmanager_url is None):
        what = (
            "neither --routing-key-file nor --alertmanager.url is given"
            if arguments.alertmanager_url is None
            else "both ways are given"
        )
        flags.problems.append(
            Problem("page-test", "", what, "Give --routing-key-file FILE, or --alertmanager.url URL.")
        )
    for flag, given in (
        ("--pagerduty.url", arguments.pagerduty_url is not None),
        ("--no-resolve", arguments.no_resolve),
    ):
        if given and arguments.alertmanager_url is not None:
            fix = "Leave it away: Alertmanager has its own URL, and ends every alert."
            flags.refuse(flag, "it is for --routing-key-file only", fix)
    if flags.problems:
        raise ConfigError(*flags.problems)
    with closing(new_session()) as session:
        if alertmanager is not None:
            _through_alertmanager(session, alertmanager, wait or WAIT_THROUGH_ALERTMANAGER_SECONDS)
        else:
            assert key is not None
            page = _Page(session, url or PAGERDUTY, key, pause)
            page.send(wait or WAIT_SECONDS, resolve=not arguments.no_resolve)
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "page-test",
        usage="llm-serving-exporter page-test (--routing-key-file FILE | --alertmanager.url URL) [OPTIONS]",
        description="Sends one page that says that it is a test, and its end.",
        epilog=_EPILOG,
    )
    usual, through = format_duration(WAIT_SECONDS), format_duration(WAIT_THROUGH_ALERTMANAGER_SECONDS)
    lasts = f"how long the incident lasts (default {usual}; through Alertmanager {through}, because a group waits before it pages)"
    add_rows(parser, (
        ("--routing-key-file", "FILE", "integration key of a service's Events API v2"),
        ("--alertmanager.url", "URL", "send a test alert to this Alertmanager instead", {"dest": "alertmanager_url"}),
        ("--pagerduty.url", "URL", f"where events go (default {PAGERDUTY})", {"dest": "pagerduty_url"}),
        ("--wait", "5s", lasts),
        ("--no-resolve", None, "leave the incident open", {"action": "store_true"}),
    ))  # fmt: skip
    return parser


def _url(text: str) -> str:
    if "@" in text:
        raise InvalidValueError(
            "the URL holds a user name or password", "Remove it: a secret stands in no command line."
        )
    address = parse_url(text)
    return f"{address.url}{(address.path or '').rstrip('/')}"


_URL = Kind("a URL such as http://localhost:9093", _url)


def _read_key(path: str, flags: FlagReader) -> str | None:
    """The key in the file, without white space around it; None where it is reported. No message ever shows any of it."""
    try:
        key = read_secret(Secret(file=path), {}).strip()
        fault = "is empty" if not key else ""
    except SecretError as error:
        key, fault = "", error.what
    if not fault and (len(key) != KEY_CHARACTERS or not key.isalnum()):
        fault = f"holds {len(key)} characters, not a key of {KEY_CHARACTERS} letters and digits"
    if fault:
        fix = "Write the integration key of a service's Events API v2 into it, 32 characters and nothing else."
        flags.refuse("--routing-key-file", f"{shown(path)} {fault}", fix)
        return None
    return key


class _Page:
    """One incident at PagerDuty: its trigger and its resolve have the same deduplication key."""

    def __init__(self, session: HttpSession, url: str, key: str, pause: Pause) -> None:
        self._session, self._url, self._key, self._pause = session, url, key, pause
        self._dedup_key = f"llm-serving-exporter-page-test-{uuid.uuid4()}"

    def send(self, wait_seconds: float, *, resolve: bool) -> None:
        """Triggers the incident, waits, and resolves it, also where the wait is cut short by Ctrl-C."""
        summary = _summary()
        self._post(
            "trigger",
            {
                "client": "llm-serving-exporter page-test",
                "payload": {
                    "summary": summary,
                    "source": socket.gethostname() or "llm-serving-exporter",
                    "severity": "critical",
                    "component": "page-test",
                    "group": "llm-serving",
                    "class": "test",
                    "custom_details": {"test": "true", "what_to_do": _NOTHING, "sent": _utc(datetime.now(UTC))},
                },
            },
        )
        print_line(f"PagerDuty has taken the page: {summary}")
        if not resolve:
            print_line(
                f"It stays open (--no-resolve). Resolve it in PagerDuty; its deduplication key is {self._dedup_key}."
            )
            return
        try:
            self._pause(wait_seconds)
        except KeyboardInterrupt:
            print_line("cut short")
        try:
            self._post("resolve", {})
        except PageError as error:
            open_still = (
                f"The incident stays open: resolve it in PagerDuty; its deduplication key is {self._dedup_key}."
            )
            raise PageError(f"{error} {open_still}") from None
        print_line(
            "It is resolved again. If nobody was paged, look at the service of this key: its escalation policy and urgency."
        )

    def _post(self, action: str, more: dict[str, Any]) -> None:
        event = {"routing_key": self._key, "event_action": action, "dedup_key": self._dedup_key, **more}
        answer = ask(self._session, "POST", self._url, self._key, json=event)
        if answer.status == 429 or answer.status >= 500:  # "retry after some time" (docs/events-api-v2/overview)
            seconds = answer.retry_after_seconds
            print_line(f"{self._url} answered {answer.status}: once more in {format_duration(seconds)}")
            self._pause(seconds)
            answer = ask(self._session, "POST", self._url, self._key, json=event)
        if answer.status == 202:
            return
        if answer.status == 400:
            raise PageError(
                f"PagerDuty refuses the {action} (400): {line(answer.text)}. "
                "Check that the key is the integration key of an Events API v2 integration, not an API key."
            )
        if answer.status == 429:
            raise PageError(f"{self._url} takes no events for now (429, twice). Try again in some minutes.")
        raise answer.unexpected("202, as PagerDuty's Events API v2 does. Check --pagerduty.url")


def _through_alertmanager(session: HttpSession, base: str, wait_seconds: float) -> None:
    """Posts a test alert that ends by itself, and says where Alertmanager takes it.

    An alert that is over when its group is first notified of is never sent: it lasts longer than asked for where its route waits so long.
    """
    # an instance of its own is a group of its own, so that a test soon after another pages too
    instance = f"page-test-{uuid.uuid4().hex[:12]}"
    now = datetime.now(UTC)
    alert = {
        "labels": {
            "alertname": ALERT,
            "severity": "critical",
            "check": "exporter",
            "test": "true",
            "instance": instance,
        },
        "annotations": {
            "summary": _summary(),
            "description": "Sent by llm-serving-exporter page-test.",
            "action": _NOTHING,
        },
        "startsAt": now.isoformat(),
    }
    url = f"{base}/api/v2/alerts"

    def post_until(ends: datetime) -> None:
        answer = ask(session, "POST", url, json=[{**alert, "endsAt": ends.isoformat()}])
        if answer.status != 200:
            raise answer.unexpected(
                "200. Check --alertmanager.url: it is the address of Alertmanager's page, without /api or /#"
            )

    ends = now + timedelta(seconds=wait_seconds)
    post_until(ends)
    print_line(f"Alertmanager has taken the alert {ALERT} ({instance}), which ends at {_utc(ends)}.")
    answer = ask(session, "GET", url, params={"filter": f'instance="{instance}"'})
    try:
        (seen,) = json.loads(answer.text)
        receivers = [receiver["name"] for receiver in seen["receivers"]]
        muted = [*seen["status"]["silencedBy"], *seen["status"]["inhibitedBy"]]
    except (ValueError, KeyError, TypeError):
        raise PageError(f"{url} does not show the alert that it has just taken; look at Alertmanager's page.") from None
    if muted:
        raise PageError(f"Alertmanager keeps it back: silenced or inhibited by {', '.join(map(str, muted))}.")
    print_line(f"It routes it to: {', '.join(map(str, receivers))}.")
    group_wait = _ask_group_wait(session, base, receivers)
    if group_wait is not None and wait_seconds < group_wait + _FOR_THE_FIRST_NOTIFICATION_SECONDS:
        ends = now + timedelta(seconds=group_wait + _AFTER_A_LONG_GROUP_WAIT_SECONDS)
        post_until(ends)
        print_line(
            f"That route waits {format_duration(group_wait)} before it pages (group_wait), and sends nothing that is over by then: "
            f"the alert ends at {_utc(ends)} instead."
        )
    waits = "15s in the example" if group_wait is None else format_duration(group_wait)
    print_line(
        f"Expect the page after that route's group_wait ({waits}), its end at the next group_interval after the alert's."
    )
    print_line(
        "If none comes: is that the receiver that pages, is the route in a mute time, what does Alertmanager's log say?"
    )


def _ask_group_wait(session: HttpSession, base: str, receivers: Sequence[str]) -> float | None:
    """The longest group_wait of the routes to these receivers, in seconds; None where Alertmanager does not show its configuration."""
    answer = ask(session, "GET", f"{base}/api/v2/status")
    try:
        return find_group_wait(str(json.loads(answer.text)["config"]["original"]), receivers)
    except (ValueError, KeyError, TypeError):
        return None


_NOTHING = "nothing to do, this is a test"


def _summary() -> str:
    return f"TEST PAGE from llm-serving-exporter on {socket.gethostname()}: nothing is wrong"


def _utc(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")

"""The example configuration in a real Alertmanager: pages and tickets as they arrive, their groups, and what is silenced with them."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations, product
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from llm_serving_alerts.routes import alertmanager_files
from tests.support.builders.alertexamples import (
    EVERYTHING,
    IDENTITY,
    Frozen,
    Labels,
    example_alerts,
    frozen,
    named,
    of_model,
    settings_of,
)
from tests.support.servers.alertmanager import DEAD_MAN, TICKETS, Alertmanager, alert, write_config
from tests.support.servers.pagerduty import ROUTING_KEY, PagerDuty

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def inbox() -> Iterator[PagerDuty]:
    with PagerDuty() as running:
        yield running
        assert not running.refused


@pytest.fixture(scope="module")
def running(inbox: PagerDuty, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    folder = tmp_path_factory.mktemp("alertmanager")
    files = alertmanager_files(settings_of("", folder))
    with Alertmanager(write_config(files, folder, inbox)) as started:
        yield started


def pages_of(inbox: PagerDuty, text: str) -> list[dict[str, Any]]:
    return [event for event in inbox.events if text in event["payload"]["custom_details"]["incident"]]


def tickets_of(inbox: PagerDuty, text: str) -> list[Any]:
    return [post for post in inbox.posts(TICKETS) if text in str(post)]


SINCE = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
RUNBOOK = "https://example.com/runbooks/LLMServingN1Critical.md"
DASHBOARD = "https://grafana.example.com/d/llm-serving-node-loss?var-model_name=org%2Fpage+model&var-role=unified"
# a model's name with all that a URL and a matcher must escape
PAGED = of_model("N1Critical", "critical", "node_loss", 'org/page "model" +1')
SAID = {
    "summary": "org/page model (unified): replicas lost, 1 left, and they queue",
    "description": "1 of 2 wanted replicas are ready.",
    "action": "bring the lost replicas back",
    "runbook_url": RUNBOOK,
    "dashboard_url": DASHBOARD,
}


def test_a_page_says_what_is_wrong_where_and_what_to_do_and_its_end_ends_the_same_incident(
    running: Alertmanager, inbox: PagerDuty
) -> None:
    running.post(alert(PAGED, SAID, since=SINCE))
    page = inbox.wait_for(lambda event: "org/page" in str(event), "the page")
    dedup_key = page["dedup_key"]
    assert len(dedup_key) == 64
    silence = page["links"][2].pop("href")
    assert page == {
        "routing_key": ROUTING_KEY,
        "event_action": "trigger",
        "dedup_key": dedup_key,
        "client": "Alertmanager",
        "client_url": f"{running.url}/#/alerts?receiver=pagerduty",
        "payload": {
            "summary": "org/page model (unified): replicas lost, 1 left, and they queue. First: bring the lost replicas back",
            "source": 'org/page "model" +1',
            "severity": "critical",
            "component": 'org/page "model" +1 (unified)',
            "class": "node_loss",
            "group": "llm-serving",
            "custom_details": {
                "incident": (
                    "alertname=LLMServingN1Critical, check=node_loss, "
                    'model_name=org/page "model" +1, role=unified, severity=critical'
                ),
                "firing": (
                    "org/page model (unified): replicas lost, 1 left, and they queue\n"
                    "1 of 2 wanted replicas are ready.\n"
                    "First: bring the lost replicas back\n"
                    f"Runbook: {RUNBOOK}\n"
                    "Since: 2026-03-01 12:30:00 UTC\n"
                    "Labels: alertname=LLMServingN1Critical, check=node_loss, "
                    'model_name=org/page "model" +1, role=unified, severity=critical\n'
                    "Query: http://prometheus.example.com/graph"
                ),
                "resolved": "",
                "num_firing": "1",
                "num_resolved": "0",
            },
        },
        "links": [
            {"text": "Runbook", "href": RUNBOOK},
            {"text": "Dashboard", "href": DASHBOARD},
            {"text": "Silence it"},
        ],
    }
    # Alertmanager's page decodes percents and leaves + alone
    assert "+" not in silence
    assert unquote(silence) == (
        f"{running.url}/#/silences/new?filter="
        r'{alertname="LLMServingN1Critical",check="node_loss",model_name="org/page \"model\" +1",role="unified",severity="critical"}'
    )

    running.post(alert(PAGED, SAID, since=SINCE, ended=True))
    end = inbox.wait_for(lambda event: event["event_action"] == "resolve" and "org/page" in str(event), "the end")
    assert end["dedup_key"] == dedup_key
    assert end["payload"]["custom_details"]["num_firing"] == "0"


def test_without_urls_a_page_has_the_command_of_its_runbook_and_no_link_that_leads_nowhere(
    running: Alertmanager, inbox: PagerDuty
) -> None:
    bare = {key: text for key, text in SAID.items() if not key.endswith("_url")}
    bare |= {
        "runbook": "llm-serving-exporter runbook LLMServingN1Critical",
        "dashboard": "/d/llm-serving-node-loss?var-role=unified",
    }
    running.post(alert(of_model("N1Critical", "critical", "node_loss", "linkless"), bare))
    page = inbox.wait_for(lambda event: "linkless" in str(event), "the page")
    assert [link["text"] for link in page["links"]] == ["Silence it"]
    firing = page["payload"]["custom_details"]["firing"]
    assert "\nRunbook: llm-serving-exporter runbook LLMServingN1Critical\n" in firing
    running.post(alert(of_model("ReplicaLost", "warning", "node_loss", "linkless-ticket"), bare))
    running.until(lambda: bool(tickets_of(inbox, "linkless-ticket")), "the ticket")
    (ticket,) = tickets_of(inbox, "linkless-ticket")
    assert "\\nDashboard: /d/llm-serving-node-loss?var-role=unified\\n" in str(ticket)


@pytest.mark.parametrize("page_first", [True, False])
def test_a_page_silences_its_ticket_and_not_that_of_another_model_and_the_ticket_comes_when_the_page_is_over(
    running: Alertmanager, inbox: PagerDuty, page_first: bool
) -> None:
    mine, other = f"mine-{page_first}", f"other-{page_first}"
    page = of_model("N1Critical", "critical", "node_loss", mine)
    tickets = [of_model(name, "warning", "node_loss", mine) for name in ("N1Insufficient", "ReplicaLost")]
    others = of_model("N1Insufficient", "warning", "node_loss", other)
    alerts = [page, *tickets] if page_first else [*tickets, page]
    # An inhibition takes hold a moment after its page has come, in production long before a group's wait is over. At a test's pace it
    # may be after: until then a silence keeps the tickets back.
    silence = running.silence(("model_name", mine), ("severity", "warning"))
    running.post(*map(alert, alerts))
    inbox.wait_for(lambda event: mine in str(event), "the page")

    def statuses() -> dict[frozenset[tuple[str, str]], dict[str, Any]]:
        return {frozen(found["labels"]): found["status"] for found in running.alerts()}

    def of_tickets(key: str) -> list[int]:
        found = statuses()
        return [len(found.get(frozen(labels), {}).get(key, ())) for labels in tickets]

    running.until(lambda: of_tickets("inhibitedBy") == [1, 1], "the tickets' inhibition")
    running.end_silence(silence)
    running.until(lambda: of_tickets("silencedBy") == [0, 0], "the end of the silence")
    # two tickets of another model, one after the other: by then the first one's group has been looked at again
    running.post(alert(others))
    inbox.until(lambda: tickets_of(inbox, other), "the other model's ticket")
    running.post(alert(of_model("ReplicaLost", "warning", "node_loss", other)))
    inbox.until(lambda: "ReplicaLost" in str(tickets_of(inbox, other)), "the other model's second ticket")
    status = statuses()
    assert status[frozen(others)]["state"] == status[frozen(page)]["state"] == "active"
    assert of_tickets("inhibitedBy") == [1, 1]
    assert not tickets_of(inbox, mine)

    running.post(alert(page, ended=True))
    inbox.until(lambda: tickets_of(inbox, mine), "the ticket, once the page is over")
    (ticket,) = tickets_of(inbox, mine)[:1]
    for name in ("N1Insufficient", "ReplicaLost"):
        assert name in ticket["attachments"][0]["text"]


def test_an_alert_that_a_user_made_critical_is_silenced_by_nothing(running: Alertmanager) -> None:
    page = of_model("TargetsDown", "critical", "exporter", "louder")
    louder = of_model("TargetDown", "critical", "exporter", "louder", target="a")
    quieter = {**louder, "severity": "warning"}
    running.post(alert(page), alert(louder), alert(quieter))

    def inhibited() -> dict[frozenset[tuple[str, str]], list[str]]:
        return {frozen(found["labels"]): found["status"]["inhibitedBy"] for found in running.alerts()}

    running.until(lambda: len(inhibited().get(frozen(quieter), ())) == 1, "the quieter one's silence")
    assert not inhibited()[frozen(louder)]


def of_lost_node(node: str, name: str = "lost-node-model") -> list[dict[str, str]]:
    """What a lost node leads to, page after page."""
    return [
        of_model("TargetsDown", "critical", "exporter", name, node=node),
        of_model("N1Critical", "critical", "node_loss", name, node=node),
        of_model("ReplicaLost", "warning", "node_loss", name, node=node),
        of_model("TargetDown", "warning", "exporter", name, target=f"{name}-0", node=node),
        named("GPUFailed", "critical", "gpu", node=node, gpu=f"GPU-{node}", gpu_name="H100"),
    ]


@pytest.mark.seam("Alertmanager")
def test_a_lost_node_is_one_page_and_what_no_node_explains_still_rings(running: Alertmanager, inbox: PagerDuty) -> None:
    node = named("NodeLost", "critical", "node_loss", node="n-lost")
    effects = of_lost_node("n-lost")
    others = [
        *of_lost_node("n-other", "other-node-model"),
        # of the same model, by another cause: one that carries no node
        of_model("TargetsDown", "critical", "exporter", "lost-node-model"),
    ]
    # an inhibition takes hold a moment after its page has come, in production long before a group's wait is over
    running.post(alert(node))
    inbox.wait_for(lambda event: "node=n-lost" in str(event), "the page of the node")
    running.post(*map(alert, (*effects, *others)))

    def inhibited() -> dict[frozenset[tuple[str, str]], list[str]]:
        return {frozen(found["labels"]): found["status"]["inhibitedBy"] for found in running.alerts()}

    running.until(lambda: all(len(inhibited().get(frozen(one), ())) == 1 for one in effects), "the effects' inhibition")
    inbox.until(lambda: all(pages_with(inbox, one) for one in (others[0], others[-1])), "the pages of other causes")
    pages = [event for event in inbox.events if "n-lost" in str(event)]
    assert {event["dedup_key"] for event in pages} == {pages[0]["dedup_key"]}
    assert not tickets_of(inbox, "n-lost")


def test_a_lost_network_is_one_page_whatever_goes_with_it(inbox: PagerDuty, tmp_path: Path) -> None:
    files = alertmanager_files(settings_of("identity_labels: [cluster]\n", tmp_path))
    with PagerDuty() as own, Alertmanager(write_config(files, tmp_path, own)) as other:
        fleet = {**named("FleetUnreachable", "critical", "exporter"), "cluster": "eu"}
        effects = [
            {**labels, "cluster": "eu"}
            for labels in (
                named("NodeLost", "critical", "node_loss", node="a"),
                named("NodeLost", "critical", "node_loss", node="b"),
                of_model("TargetsDown", "critical", "exporter", "one"),
                of_model("TargetsDown", "critical", "exporter", "two"),
            )
        ]
        elsewhere = {**of_model("TargetsDown", "critical", "exporter", "one"), "cluster": "us"}
        other.post(alert(fleet))
        own.wait_for(lambda event: "FleetUnreachable" in str(event), "the page of the fleet")
        other.post(*map(alert, (*effects, elsewhere)))
        own.until(lambda: pages_with(own, elsewhere), "the page of another cluster")
        other.until(
            lambda: sum(bool(found["status"]["inhibitedBy"]) for found in other.alerts()) == 4, "the inhibition"
        )
        assert len({event["dedup_key"] for event in own.events}) == 2


ONE_INCIDENT = {
    "all that one GPU does": (
        named("GPUFailed", "critical", "gpu", node="n", gpu="GPU-share", gpu_name="H100"),
        named("GPUMemoryFault", "critical", "gpu", node="n", gpu="GPU-share", gpu_name="H100"),
    ),
    "two stalled engines of a target": (
        of_model("Stalled", "critical", "slo", "stalled", target="a", engine="0"),
        of_model("Stalled", "critical", "slo", "stalled", target="a", engine="1"),
    ),
}
TWO_INCIDENTS = {
    "two stalled replicas of a model": (
        of_model("Stalled", "critical", "slo", "two-stalled", target="a", engine="0"),
        of_model("Stalled", "critical", "slo", "two-stalled", target="b", engine="0"),
    ),
    "a warning that a user made critical, and the real thing": (
        of_model("N1Insufficient", "critical", "node_loss", "louder-n1"),
        of_model("N1Critical", "critical", "node_loss", "louder-n1"),
    ),
    "a model's objective, and a user's own alert of the same check": (
        of_model("TTFTBurn", "critical", "ttft", "own", slo="ttft"),
        {**of_model("TTFTOwn", "critical", "ttft", "own", slo="ttft"), "team": "x"},
    ),
    "two ways that do not deliver": (
        named("NotificationsFailing", "critical", "exporter", instance="am-2:9093", integration="slack"),
        named("NotificationsFailing", "critical", "exporter", instance="am-2:9093", integration="pagerduty"),
    ),
    "two models": (
        of_model("N1Critical", "critical", "node_loss", "one"),
        of_model("N1Critical", "critical", "node_loss", "two"),
    ),
    "two checks of a model": (
        of_model("TTFTBurn", "critical", "ttft", "checks", slo="ttft"),
        of_model("ThroughputBelowBaseline", "critical", "phases", "checks"),
    ),
    "two GPUs of a node": (
        named("GPUFailed", "critical", "gpu", node="n", gpu="GPU-x", gpu_name="H100"),
        named("GPUFailed", "critical", "gpu", node="n", gpu="GPU-y", gpu_name="H100"),
    ),
    "two objectives": (
        of_model("SLOBurn", "critical", "slo", "objectives", slo="itl"),
        of_model("SLOBurn", "critical", "slo", "objectives", slo="errors"),
    ),
    "a stalled engine and an objective": (
        of_model("Stalled", "critical", "slo", "both", target="a", engine="0"),
        of_model("SLOBurn", "critical", "slo", "both", slo="e2e"),
    ),
    "two troubles of one Alertmanager": (
        named("NotificationsFailing", "critical", "exporter", instance="am:9093", integration="email"),
        named("ConfigReloadFailed", "critical", "exporter", instance="am:9093"),
    ),
    "no exporter, and a model's targets down": (
        named("ExporterAbsent", "critical", "exporter"),
        of_model("TargetsDown", "critical", "exporter", "down"),
    ),
    "pools of a disaggregated model": (
        {**of_model("TargetsDown", "critical", "exporter", "pools"), "role": "prefill"},
        {**of_model("TargetsDown", "critical", "exporter", "pools"), "role": "decode"},
    ),
}


def pages_with(inbox: PagerDuty, labels: Labels) -> list[dict[str, Any]]:
    shown = f"Labels: {', '.join(f'{name}={text}' for name, text in sorted(labels.items()))}\n"
    return [event for event in inbox.events if shown in event["payload"]["custom_details"]["firing"]]


@pytest.mark.seam("Alertmanager")
def test_one_incident_is_one_deduplication_key_and_two_are_two(running: Alertmanager, inbox: PagerDuty) -> None:
    pairs = {**ONE_INCIDENT, **TWO_INCIDENTS}
    running.post(*(alert(labels) for pair in pairs.values() for labels in pair))
    for what, pair in pairs.items():
        keys = []
        for labels in pair:
            inbox.until(lambda labels=labels: pages_with(inbox, labels), f"the page of {labels}")
            keys.append({event["dedup_key"] for event in pages_with(inbox, labels)})
        assert all(len(found) == 1 for found in keys), what
        assert (keys[0] == keys[1]) == (what in ONE_INCIDENT), what


def test_a_page_of_several_alerts_says_how_many_and_shows_the_first_twenty(
    running: Alertmanager, inbox: PagerDuty
) -> None:
    many = [
        of_model("Stalled", "critical", "slo", "many", target="replica-1", engine=f"{number:02}")
        for number in range(25)
    ]
    running.post(*(alert(labels, {"summary": "stands still"}) for labels in many))
    page = inbox.wait_for(lambda event: event["payload"]["custom_details"]["num_firing"] == "25", "the page")
    assert page["payload"]["summary"] == "stands still (1 of 25 alerts)"
    assert page["payload"]["source"] == "replica-1"
    firing = page["payload"]["custom_details"]["firing"]
    assert firing.count("Labels: ") == 20
    assert firing.endswith("The first 20 of 25.")


def test_a_silence_made_of_a_ticket_leaves_the_page_alone(running: Alertmanager, inbox: PagerDuty) -> None:
    ticket = of_model("TTFTBurn", "warning", "ttft", "silenced", slo="ttft")
    page = of_model("TTFTBurn", "critical", "ttft", "silenced", slo="ttft")
    running.post(alert(ticket))
    inbox.until(lambda: tickets_of(inbox, "silenced"), "the ticket")
    (said,) = re.findall(r"Silence it: (\S+)", tickets_of(inbox, "silenced")[0]["attachments"][0]["text"])
    running.silence(*re.findall(r'(\w+)="([^"]*)"', unquote(said).partition("?filter=")[2]))
    running.post(alert(ticket), alert(page))
    inbox.wait_for(lambda event: "silenced" in str(event), "the page")

    def silenced() -> dict[str, bool]:
        mine = (found for found in running.alerts() if found["labels"].get("model_name") == "silenced")
        return {found["labels"]["severity"]: bool(found["status"]["silencedBy"]) for found in mine}

    running.until(lambda: silenced()["warning"], "the ticket's silence")
    assert not silenced()["critical"]


def test_the_watchdog_reaches_the_dead_man_and_info_reaches_nobody(running: Alertmanager, inbox: PagerDuty) -> None:
    running.post(
        alert(named("Watchdog", "none", "exporter")),
        alert(of_model("DrillOverdue", "info", "node_loss", "quiet")),
        alert(of_model("KVSaturated", "warning", "kv", "loud", target="a", engine="0")),
    )
    inbox.until(lambda: inbox.posts(DEAD_MAN), "the ping")
    inbox.until(lambda: tickets_of(inbox, "loud"), "the ticket")
    assert [found["labels"]["alertname"] for found in inbox.posts(DEAD_MAN)[0]["alerts"]] == ["LLMServingWatchdog"]
    for everybody in (inbox.events, inbox.posts(TICKETS)):
        assert "Watchdog" not in str(everybody)
        assert "quiet" not in str(everybody)


@pytest.mark.parametrize("status", [429, 500])
def test_a_page_that_pagerduty_did_not_take_is_sent_again(running: Alertmanager, inbox: PagerDuty, status: int) -> None:
    inbox.answer(status)
    before = inbox.attempts
    running.post(alert(of_model("N1Critical", "critical", "node_loss", f"again-{status}")))
    inbox.wait_for(lambda event: f"again-{status}" in str(event), "the page at the second attempt")
    assert inbox.attempts >= before + 2


def test_an_alert_without_our_annotations_and_with_a_strange_severity_is_still_a_page_that_pagerduty_takes(
    inbox: PagerDuty, tmp_path: Path
) -> None:
    files = alertmanager_files(settings_of("", tmp_path))
    changed = files["alertmanager.yml"].replace("receiver: tickets", "receiver: pagerduty")
    with Alertmanager(write_config({**files, "alertmanager.yml": changed}, tmp_path, inbox)) as other:
        other.post(alert({"alertname": "Strange", "severity": "page"}, {"summary": ""}))
        page = inbox.wait_for(lambda event: "Strange" in str(event), "the page")
    assert page["payload"]["severity"] == "error"
    assert page["payload"]["summary"] == page["payload"]["component"] == page["payload"]["class"] == "Strange"
    assert page["payload"]["source"] == "llm-serving"
    assert [link["text"] for link in page["links"]] == ["Silence it"]


def test_maintenance_keeps_pages_and_tickets_back_and_the_watchdog_goes_on(tmp_path: Path) -> None:
    files = alertmanager_files(settings_of("", tmp_path))
    always = [{"name": "maintenance", "time_intervals": [{"years": ["2000:2100"]}]}]
    kept = [of_model("N1Critical", "critical", "node_loss"), named("ExporterAbsent", "critical", "exporter"),
            of_model("KVSaturated", "warning", "kv"), named("RestartLoop", "warning", "exporter", target="a")]  # fmt: skip
    with PagerDuty() as inbox:
        config = write_config(files, tmp_path, inbox, time_intervals=always)
        with Alertmanager(config, log_level="debug") as muted:
            muted.post(*map(alert, kept), alert(named("Watchdog", "none", "exporter")))
            # each group twice, a second apart: one that is not kept back has arrived by then
            muted.until(
                lambda: muted.log.count("within mute time") >= 2 * len(kept), "every group to have been kept back"
            )
            inbox.until(lambda: inbox.posts(DEAD_MAN), "the ping")
            assert not inbox.events
            assert not inbox.posts(TICKETS)


# --- what a real Alertmanager makes of every alert of two fleets, models, roles and GPUs, all at once ---


# what makes alerts of different incidents different, whatever else they say
APART = ("cluster", "namespace", "check", "severity", "model_name", "role", "gpu", "node", "slo")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Any], dict[Frozen, list[Frozen]]]]:
    """All groups, and by the labels of an alert those that inhibit it."""
    folder = tmp_path_factory.mktemp("fleet")
    settings = settings_of(EVERYTHING + IDENTITY, folder)
    variants = [
        {"cluster": cluster, "model_name": model, "role": role, "gpu": gpu, "slo": slo}
        for cluster, model, role, gpu, slo in product(
            ("eu", "us"), ("model-a", "model-b"), ("unified", "decode"), ("GPU-1", "GPU-2"), ("ttft", "itl")
        )
    ]
    posted = {frozen(labels): labels for variant in variants for labels in example_alerts(settings, variant)}
    # and every alert as a rule with other labels, or somebody else's with the same name, would send it: without model and role
    bare = [
        {name: text for name, text in labels.items() if name not in ("model_name", "role", "cluster")}
        for labels in posted.values()
    ]
    posted.update((frozen(labels), labels) for labels in bare)
    with PagerDuty() as inbox, Alertmanager(write_config(alertmanager_files(settings), folder, inbox)) as running:
        running.post(*(alert(labels) for labels in posted.values()))
        running.until(
            lambda: sum(len(group["alerts"]) for group in running.groups()) == len(posted), "every alert in a group"
        )
        known = running.alerts()
        by_fingerprint = {found["fingerprint"]: frozen(found["labels"]) for found in known}
        inhibited = {
            frozen(found["labels"]): [by_fingerprint[cause] for cause in found["status"]["inhibitedBy"]]
            for found in known
        }
        assert not inbox.refused
        yield running.groups(), inhibited


def test_alerts_that_differ_in_what_makes_an_incident_are_never_in_one_group(fleet: Any) -> None:
    groups, _ = fleet
    for group in groups:
        if group["receiver"]["name"] in ("pagerduty", "tickets"):
            for one, other in combinations((found["labels"] for found in group["alerts"]), 2):
                differ = {name for name in APART if one.get(name) != other.get(name)}
                assert not differ, f"{one} hides {other}"


def test_each_alert_is_in_one_group_of_one_receiver(fleet: Any) -> None:
    groups, inhibited = fleet
    seen = [frozen(found["labels"]) for group in groups for found in group["alerts"]]
    assert len(seen) == len(set(seen)) == len(inhibited)
    for group in groups:
        for found in group["alerts"]:
            assert [receiver["name"] for receiver in found["receivers"]] == [group["receiver"]["name"]]


OF_MODEL, OF_NODE, OF_FLEET = ("cluster", "namespace", "model_name", "role"), ("cluster", "node"), ("cluster",)
# by hand, from the table in docs/alertmanager.md: an alert is silent while one of these pages for the same model, node or fleet. All of
# them are there at once, and Alertmanager names the first that it finds
SILENCED_BY = {
    ("ThroughputBelowBaseline", "warning"): ("ThroughputBelowBaseline", OF_MODEL),
    ("TTFTBurn", "warning"): ("TTFTBurn", OF_MODEL),
    ("SLOBurn", "warning"): ("SLOBurn", OF_MODEL),
    ("N1Insufficient", "warning"): ("N1Critical", OF_MODEL),
    ("ReplicaLost", "warning"): ("N1Critical", OF_MODEL),
    ("TargetDown", "warning"): ("TargetsDown", OF_MODEL),
    ("TargetsDown", "critical"): ("NodeLost", OF_NODE),
    ("N1Critical", "critical"): ("NodeLost", OF_NODE),
    ("GPUFailed", "critical"): ("NodeLost", OF_NODE),
    ("TTFTBurn", "critical"): ("NodeLost", OF_NODE),
    ("SLOBurn", "critical"): ("NodeLost", OF_NODE),
    ("NodeLost", "critical"): ("FleetUnreachable", OF_FLEET),
}


def test_a_page_silences_what_follows_from_it_for_its_own_model_node_or_fleet_and_nothing_else(fleet: Any) -> None:
    _, inhibited = fleet
    silenced = set()
    for target, causes in inhibited.items():
        labels = dict(target)
        kind = labels["alertname"].removeprefix("LLMServing"), labels["severity"]
        wanted, equal = SILENCED_BY.get(kind, ("", ()))
        # each side has to carry what is compared
        if not wanted or not labels.keys() >= set(equal):
            assert causes == [], labels
            continue
        assert len(causes) == 1, labels
        cause = dict(causes[0])
        assert cause["alertname"] == f"LLMServing{wanted}"
        assert cause["severity"] == "critical"
        for name in equal:
            assert cause[name] == labels[name]
        assert wanted != "SLOBurn" or cause["slo"] == labels["slo"]
        silenced.add(kind)
    assert silenced == set(SILENCED_BY)

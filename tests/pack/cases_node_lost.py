"""When NodeLost fires, and which alerts carry the node."""

from llm_serving_exporter.model.record import replace
from tests.pack.builders import Grows, counter, engine, firing, held, target
from tests.pack.cases_exporters import _exporter as exporter
from tests.pack.cases_ttft import _burn, slo_events
from tests.pack.promtool import Case, Firing, cases, row

_ROLE = {"role": "unified"}


def _lost(node: str, models: str) -> Firing:
    return firing(
        "NodeLost",
        {"node": node},
        f"node {node} is lost",
        f"None of its replicas serves, and it does not answer, or Kubernetes does not hear of it. Ready replicas that it had: {models}. "
        "Their own alerts carry its name and are not told while this page is open.",
    )


def _on(
    node: str, model: str, name: str, *states: tuple[int, str], fault: str = "silent", nodes: tuple[str, ...] = ()
) -> dict[str, str]:
    """A replica on a node (or on several, by `nodes`). While it is down it has this fault; "": its host answers."""
    found = target(model, name, *states)
    for one in nodes or (node,):
        found[f'llm_serving_target_node_info{{target="{name}",model_name="{model}",role="unified",node="{one}"}}'] = (
            held((sum(samples for samples, _ in states), 1))
        )
    if fault:
        key = f'llm_serving_target_fault_info{{target="{name}",fault="{fault}",node="{node}"}}'
        found[key] = held(
            *((samples, 1 if now == "down" else "stale" if samples == 1 else "_") for samples, now in states)
        )
    return found


_THERE = exporter("central", (90, True))
_GOES, _STAYS = ((20, "ready"), (30, "down"), (40, "ready")), ((90, "ready"),)
_SILENT = (
    _THERE
    | _on("n-1", "chat", "chat-0", *_GOES)
    | _on("n-1", "embed", "embed-0", *_GOES)
    | _on("n-2", "chat", "chat-1", *_STAYS)
    | _on("n-3", "chat", "chat-2", *_STAYS)
)
_TARGETS_DOWN = firing(
    "TargetsDown",
    {"model_name": "embed", **_ROLE, "node": "n-1"},
    "embed (unified): 100% of its replicas are down",
    "Replicas wanted: unknown, known: 1. 100% of them do not answer, neither loading nor asleep.",
)


def _ready(node: str, *spans: tuple[int, float | str]) -> dict[str, str]:
    return {f'kube_node_status_condition{{node="{node}",condition="Ready",status="true"}}': held(*spans)}


def _switched_off(*, left: int, off: int, closed: int = 0) -> dict[str, str]:
    """The minutes in which the replica of n-1 is gone, whoever asks its exporter waits, and somebody has closed the node (0: nobody)."""
    found = exporter("n-1", (off, True), (90 - off, False), mode="node", node="n-1")
    found |= exporter("n-2", (90, True), mode="node", node="n-2")
    found['scrape_duration_seconds{instance="n-1:10077",job="llm"}'] = held((off, 0.02), (90 - off, 10))
    if closed:
        found['kube_node_spec_unschedulable{node="n-1"}'] = held((closed, 0), (90 - closed, 1))
    served = _on("n-1", "chat", "chat-0", (left, "ready"), fault="")
    return found | {key: f"{text} stale" for key, text in served.items()}


_NODES = cases(
    "NodeLost",
    row(
        "nothing on a node takes a connection, from minute 20 to 50",
        _SILENT,
        {"22m": (), "27m": _lost("n-1", "chat (unified) 1, embed (unified) 1"), "56m": ()},
    ),
    row(
        "a process that is down on a node of its own: its host refuses the connection",
        _THERE | _on("n-1", "chat", "chat-0", *_GOES, fault="") | _on("n-2", "chat", "chat-1", *_STAYS),
        "40m",
    ),
    row(
        "one of two replicas on a node is silent, the other one serves",
        _THERE | _on("n-1", "chat", "chat-0", *_GOES) | _on("n-1", "chat", "chat-1", *_STAYS),
        "40m",
    ),
    row(
        "of a replica that spans two nodes the one with its address is lost",
        _THERE
        | _on("n-1", "chat", "chat-0", *_GOES, nodes=("n-1", "n-2"))
        | _on("n-3", "chat", "chat-1", *_STAYS, nodes=("n-3", "n-4")),
        {"30m": _lost("n-1", "chat (unified) 1")},
        doubled=False,
    ),
    row(
        "a node that never had a ready replica",
        _THERE | _on("n-1", "chat", "chat-0", (90, "down")) | _on("n-2", "chat", "chat-1", *_STAYS),
        "40m",
    ),
    row(
        "Kubernetes hears of it no more, and its pods are gone",
        _THERE
        | _ready("n-1", (20, 1), (30, 0), (40, 1))
        | _ready("n-2", (90, 1))
        | {key: f"{text} stale" for key, text in _on("n-1", "chat", "chat-0", (20, "ready"), fault="").items()}
        | _on("n-2", "chat", "chat-1", *_STAYS),
        {"28m": _lost("n-1", "chat (unified) 1"), "52m": ()},
        doubled=False,
    ),
    row(
        "the same of a node that somebody cordoned",
        _THERE
        | _ready("n-1", (20, 1), (70, 0))
        | {'kube_node_spec_unschedulable{node="n-1"}': held((18, 0), (72, 1))}
        | {key: f"{text} stale" for key, text in _on("n-1", "chat", "chat-0", (18, "ready"), fault="").items()}
        | _on("n-2", "chat", "chat-1", *_STAYS),
        "40m",
    ),
    row(
        "Kubernetes calls it not ready, and its replica serves",
        _THERE | _ready("n-1", (20, 1), (70, 0)) | _on("n-1", "chat", "chat-0", *_STAYS),
        "40m",
    ),
    row(
        "the exporter on it goes with it: whoever asks waits",
        exporter("n-1", (20, True), (70, False), mode="node", node="n-1")
        | exporter("n-2", (90, True), mode="node", node="n-2")
        | {'scrape_duration_seconds{instance="n-1:10077",job="llm"}': held((20, 0.02), (70, 10))}
        | {key: f"{text} stale" for key, text in _on("n-1", "chat", "chat-0", (20, "ready"), fault="").items()}
        | _on("n-2", "chat", "chat-1", *_STAYS),
        {"40m": _lost("n-1", "chat (unified) 1")},
        doubled=False,
    ),
    row(
        "the exporter on it is down alone: its host refuses the connection",
        exporter("n-1", (20, True), (70, False), mode="node", node="n-1")
        | exporter("n-2", (90, True), mode="node", node="n-2")
        | {'scrape_duration_seconds{instance="n-1:10077",job="llm"}': held((20, 0.02), (70, 0.001))}
        | {key: f"{text} stale" for key, text in _on("n-1", "chat", "chat-0", (20, "ready"), fault="").items()}
        | _on("n-2", "chat", "chat-1", *_STAYS),
        "40m",
    ),
    row(
        "it is drained, and switched off with the exporter that stayed on it",
        _switched_off(closed=20, left=22, off=30) | _on("n-2", "chat", "chat-1", *_STAYS),
        {"38m": (), "45m": (), "80m": ()},
    ),
    row(
        "the same, and nobody says that it was closed: its replicas left half an hour before",
        _switched_off(left=22, off=52) | _on("n-2", "chat", "chat-1", *_STAYS),
        {"60m": (), "80m": ()},
    ),
    row(
        "the same, and they were still there",
        _switched_off(left=30, off=30) | _on("n-2", "chat", "chat-1", *_STAYS),
        {"45m": _lost("n-1", "chat (unified) 1"), "80m": _lost("n-1", "chat (unified) 1")},
        doubled=False,
    ),
)

# of 100 requests a minute 20 are late, all the time; a node of four is lost from minute 20 to 50
_LATE = exporter("central", (120, True)) | slo_events(
    engine("chat", "chat-1"), "ttft", counter(Grows(120, 80)), counter(Grows(120, 20))
)
_PAGE, _LATE_TICKET = (_burn(severity, "chat", "20", "20%", "20%") for severity in ("critical", "warning"))
_OF_THE_NODE = replace(_PAGE, labels={**_PAGE.labels, "node": "n-1"})


def _one_of(replicas: int) -> dict[str, str]:
    """The first of so many is lost with its node."""
    found = dict(_LATE)
    for number in range(replicas):
        states = ((120, "ready"),) if number else ((20, "ready"), (30, "down"), (70, "ready"))
        found |= _on(f"n-{number + 1}", "chat", f"chat-{number}", *states)
    return found


_BURNS = cases(
    "TTFTBurn",
    row(
        "a lost node explains it, and for a quarter of an hour after it is back what the windows still hold",
        _one_of(4),
        {"18m": _PAGE, "30m": (_OF_THE_NODE, _LATE_TICKET), "54m": _LATE_TICKET, "80m": (_PAGE, _LATE_TICKET)},
    ),
    row(
        "a lost node of a dozen does not explain it",
        _one_of(12),
        {"30m": (_PAGE, _LATE_TICKET), "54m": (_PAGE, _LATE_TICKET)},
    ),
    doubled=False,
    rules="burns",
)

CASES = (*_NODES, *_BURNS)
EXPORTER_CASES = (
    Case(
        "TargetsDown",
        "the alert of a model that was on it alone carries the node",
        _SILENT,
        {"30m": _TARGETS_DOWN},
        doubled=False,
    ),
)

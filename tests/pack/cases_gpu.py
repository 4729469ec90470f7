"""When the alerts of check gpu fire and when they do not."""

from collections.abc import Mapping

from tests.pack.builders import firing
from tests.pack.builders_kv import flat, growing, labelled, selector
from tests.pack.promtool import Firing, cases, row

_CARD = {"gpu": "GPU-1", "gpu_name": "NVIDIA H100", "node": "node-a"}
_OTHER = {"gpu": "GPU-2", "gpu_name": "NVIDIA H100", "node": "node-a"}


def _gpu(name: str, values: str, card: Mapping[str, str] = _CARD, **labels: str) -> dict[str, str]:
    """A series of a card, which answers unless `name` is "up" and says otherwise."""
    shown = {selector("llm_serving_gpu_up", instance="node-a:10077", **card): flat((1, 180))}
    return shown | {selector(f"llm_serving_gpu_{name}", instance="node-a:10077", **card, **labels): values}


def _failed(summary: str, description: str) -> Firing:
    return firing("GPUFailed", _CARD, f"node-a NVIDIA H100 GPU-1: {summary}", description)


def _xid(xids: str) -> Firing:
    return _failed(
        f"XID {xids}",
        f"The driver reported XID {xids} within the last 15m: a fault of the card, its memory, its link or its firmware.",
    )


def _memory(summary: str, description: str) -> Firing:
    return firing("GPUMemoryFault", _CARD, f"node-a NVIDIA H100 GPU-1: {summary}", description)


_ECC_TEXT = "2 memory errors that could not be corrected in the last hour. What was computed from that memory is wrong or was killed."
_ECC = _memory("uncorrectable memory errors", _ECC_TEXT)


def _remap(text: str) -> Firing:
    return _memory("memory rows wait to be remapped, or could not be", f" {text}")


def _slow(reasons: str) -> Firing:
    return firing(
        "GPUSlowdown",
        _CARD,
        "node-a NVIDIA H100 GPU-1: clocks are held down while busy",
        f"Reason: {reasons}. It held for 10m or more of the last 20m. The card does less than its ceilings say.",
    )


_LOST = _failed(
    "the GPU no longer answers",
    "It did before. It fell off the bus, or the driver gave it up; its replicas are gone or about to be.",
)


def _driver(values: str) -> dict[str, str]:
    return {selector("llm_serving_nvml_up", instance="node-a:10077"): values}


_FATAL = ("48", "62", "64", "74", "79", "95", "119", "120")
_XIDS = cases(
    "GPUFailed",
    row(
        "everything that says that the card is broken",
        {
            name: values
            for xid in _FATAL
            for name, values in _gpu("xid_events_total", flat((0, 5), (1, 5)), xid=xid).items()
        },
        {"8m": _xid(", ".join(sorted(_FATAL)))},
    ),
    row(
        "one event: a page at once, over after 15m",
        _gpu("xid_events_total", growing((0, 20), (1, 1), (0, 40)), xid="79")
        | _gpu("xid_events_total", flat((0, 61)), _OTHER, xid="79"),
        {"24m": _xid("79"), "18m": (), "40m": ()},
    ),
    row(
        "an application's fault (13, 31, 43) and what only informs (63)",
        _gpu("xid_events_total", growing((1, 40)), xid="13")
        | _gpu("xid_events_total", growing((1, 40)), xid="31")
        | _gpu("xid_events_total", growing((1, 40)), xid="43")
        | _gpu("xid_events_total", growing((1, 40)), xid="63"),
        "30m",
    ),
    row(
        "the exporter restarts and counts from 0 again",
        _gpu("xid_events_total", flat((3, 20), (0, 20)), xid="48"),
        "25m",
    ),
    row(
        "an event as the card goes: its count outlives it",
        _gpu("xid_events_total", flat((0, 20), (1, 20)), xid="79") | _gpu("up", flat((1, 20), (0, 20))),
        {"25m": _xid("79")},
    ),
    row("no series", _gpu("up", flat((1, 40))), "30m"),
)

_MEMORY = cases(
    "GPUMemoryFault",
    row(
        "two errors in the last hour",
        # 3 before, which nobody was there to see. increase() stretches 2 over 89 to 90 minutes of 89: still 2 when rounded
        _gpu("ecc_errors_total", flat((3, 90), (5, 80)), kind="uncorrected"),
        {"100m": _ECC, "85m": (), "160m": ()},
    ),
    row("corrected errors", _gpu("ecc_errors_total", growing((5, 90)), kind="corrected"), "80m"),
    row(
        "the driver is loaded anew and counts from 0",
        _gpu("ecc_errors_total", flat((7, 40), (0, 40)), kind="uncorrected"),
        "50m",
    ),
    row(
        "a row waits, then the card is reset",
        _gpu("remap_pending", flat((0, 10), (1, 30), (0, 30))) | _gpu("remap_failed", flat((0, 70))),
        {"35m": _remap("A row is remapped at the next reset."), "20m": (), "50m": ()},
    ),
    row(
        "remapping failed while another row waits: one alert that says the worse",
        _gpu("remap_pending", flat((1, 60))) | _gpu("remap_failed", flat((1, 60))),
        {"35m": _remap("Remapping failed: the card has no spare rows.")},
    ),
    row("the card does not say", _gpu("up", flat((1, 60))), "35m"),
)

_THERMAL = ("hw_thermal_slowdown", "sw_thermal_slowdown")
_SLOWDOWN = cases(
    "GPUSlowdown",
    row(
        "hot for ten minutes, then cool",
        _gpu("slowdown", flat((0, 5), (1, 25), (0, 20)), reason=_THERMAL[0])
        | _gpu("slowdown", flat((0, 5), (1, 25), (0, 20)), reason=_THERMAL[1])
        | _gpu("slowdown", flat((0, 50)), reason="hw_power_brake_slowdown")
        | _gpu("slowdown", flat((0, 50)), _OTHER, reason=_THERMAL[0])
        | _gpu("busy_ratio", flat((0.9, 50)))
        | _gpu("busy_ratio", flat((0.9, 50)), _OTHER),
        {"25m": _slow("hw_thermal_slowdown, sw_thermal_slowdown"), "13m": (), "41m": ()},
        # ten minutes are counted at 14m; the last of them leave the window at 40m
    ),
    row(
        "four of every six minutes for two hours, then cool; another card two of every six",
        _gpu("slowdown", " ".join(["1 1 1 1 0 0"] * 20 + ["0"] * 30), reason=_THERMAL[0])
        | _gpu("slowdown", " ".join(["1 1 0 0 0 0"] * 20 + ["0"] * 30), _OTHER, reason=_THERMAL[0])
        | _gpu("busy_ratio", flat((0.9, 150)))
        | _gpu("busy_ratio", flat((0.9, 150)), _OTHER),
        {
            "17m": _slow("hw_thermal_slowdown"),
            "12m": (),
            **{f"{minute}m": _slow("hw_thermal_slowdown") for minute in (29, 59, 60, 61, 62, 63, 64, 119)},
            "128m": (),
        },
    ),
    row(
        "an exporter that was away for most of the window counts for no slow card",
        _gpu("slowdown", flat((0, 15), ("_", 12), (1, 7), (0, 20)), reason=_THERMAL[0])
        | _gpu("busy_ratio", flat((0.9, 15), ("_", 12), (0.9, 27))),
        "33m",
    ),
    row(
        "the reason changes every minute: one alert all the same",
        _gpu("slowdown", " ".join(["1 0"] * 20), reason=_THERMAL[0])
        | _gpu("slowdown", " ".join(["0 1"] * 20), reason="hw_power_brake_slowdown")
        | _gpu("busy_ratio", flat((0.9, 40))),
        {"26m": _slow("hw_power_brake_slowdown, hw_thermal_slowdown")},
    ),
    row(
        "at its power limit, as a busy card should be",
        _gpu("slowdown", flat((1, 40)), reason="sw_power_cap") | _gpu("busy_ratio", flat((1, 40))),
        "30m",
    ),
    row(
        "nothing runs", _gpu("slowdown", flat((1, 40)), reason="hw_slowdown") | _gpu("busy_ratio", flat((0, 40))), "30m"
    ),
    row("use unknown", _gpu("slowdown", flat((1, 40)), reason="hw_slowdown"), "30m"),
)

_LOSSES = cases(
    "GPUFailed",
    row(
        "it answers no more: a page after 2m, for as long as that lasts",
        _gpu("up", flat((1, 20), (0, 130), (1, 20))) | _gpu("up", flat((1, 170)), _OTHER) | _driver(flat((1, 170))),
        {"140m": _LOST, "15m": (), "20m": (), "30m": _LOST, "160m": ()},
    ),
    row("the only card of the node", _gpu("up", flat((1, 20), (0, 20))) | _driver(flat((1, 40))), {"30m": _LOST}),
    row(
        "the node came back without the card",
        _gpu("up", flat((1, 70), ("stale", 1)))
        | _gpu("up", flat((1, 70), ("_", 6), (1, 80)), _OTHER)
        | _driver(flat((1, 70), ("_", 6), (1, 80))),
        {"90m": _LOST, "65m": (), "140m": ()},
    ),
    row(
        "a virtual machine is started again, on a host with other cards",
        _gpu("up", flat((1, 70), ("stale", 1)))
        | _gpu("up", flat((1, 70), ("stale", 1)), _OTHER)
        | _gpu("up", flat(("_", 76), (1, 80)), {**_CARD, "gpu": "GPU-3"})
        | _gpu("up", flat(("_", 76), (1, 80)), {**_CARD, "gpu": "GPU-4"})
        | _driver(flat((1, 70), ("_", 6), (1, 80))),
        {"80m": (), "90m": (), "125m": ()},
    ),
    row(
        "the same, and one card fewer is there",
        _gpu("up", flat((1, 70), ("stale", 1)))
        | {
            selector("llm_serving_gpu_up", instance="node-a:10077", **{**_CARD, "gpu": f"MIG-{number}"}): flat((1, 150))
            for number in (1, 2)
        }
        | _driver(flat((1, 70), ("_", 6), (1, 80))),
        {"90m": _LOST},
    ),
    row(
        "a pod went with its exporter, another one serves on the same node",
        _gpu("up", flat((1, 70), ("stale", 1)))
        | _driver(flat((1, 70), ("stale", 1)))
        | {selector("llm_serving_gpu_up", instance="10.0.0.2:10077", **_OTHER): flat((1, 140))}
        | {selector("llm_serving_nvml_up", instance="10.0.0.2:10077"): flat((1, 140))},
        "90m",
    ),
    row(
        "the driver does not answer (library and kernel module differ after an upgrade): the engines go on",
        _gpu("up", flat((1, 70), ("stale", 1))) | _driver(flat((1, 70), (0, 70))),
        "90m",
    ),
    row(
        "MIG instances were cut anew",
        _gpu("up", flat((1, 140)))
        | _gpu("up", flat((1, 70), ("stale", 1)), {**_CARD, "gpu": "MIG-1"})
        | _gpu("up", flat(("_", 70), (1, 70)), {**_CARD, "gpu": "MIG-2"})
        | _driver(flat((1, 140))),
        "90m",
    ),
    row(
        "one pass in which it does not answer",
        _gpu("up", flat((1, 20), (0, 1), (1, 20))) | _driver(flat((1, 41))),
        "22m",
    ),
    row(
        "two clusters whose nodes have the same names and addresses, one came back without the card",
        labelled(_gpu("up", flat((1, 70), ("stale", 1))) | _driver(flat((1, 140))), cluster="eu")
        | labelled(_gpu("up", flat((1, 140))) | _driver(flat((1, 140))), cluster="us"),
        {
            "90m": firing(
                "GPUFailed",
                {"cluster": "eu", **_CARD},
                "eu node-a NVIDIA H100 GPU-1: the GPU no longer answers",
                _LOST.annotations["description"],
                rules="gpu_clusters",
            )
        },
        rules="gpu_clusters",
    ),
    row(
        "one of two exporters cannot read it",
        _gpu("up", flat((1, 20), (0, 40)))
        | {selector("llm_serving_gpu_up", instance="other:10077", **_CARD): flat((1, 60))},
        "40m",
    ),
    row(
        "one of two exporters, which call the node by different names, cannot read it",
        _gpu("up", flat((1, 20), (0, 40)))
        | {selector("llm_serving_gpu_up", instance="other:10077", **{**_CARD, "node": "pod-1"}): flat((1, 60))},
        "40m",
    ),
)

CASES = (*_XIDS, *_MEMORY, *_SLOWDOWN, *_LOSSES)

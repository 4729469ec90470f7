"""UnpricedGPU and ReportMissed: when they fire and when they do not."""

from __future__ import annotations

from collections.abc import Mapping

from tests.pack.builders import NOTHING, firing, held, target
from tests.pack.builders_cost import labels, variables, with_gap
from tests.pack.promtool import Case, Firing, Kind, Story, together

# --- UnpricedGPU: no price for a target while others have one; for 1h; info ----------------------------------------------------------------

_PRICED = {'llm_serving_gpu_price_usd_per_hour{target="other-0",gpu_name="H100 SXM",rate="h100"}': held((121, 2.5))}


def _signal(name: str, reason: str, values: str | float = 0.0, instance: str = "") -> dict[str, str]:
    told = f'instance="{instance}",' if instance else ""
    text = values if isinstance(values, str) else held((121, values))
    return {f'llm_serving_signal_available{{{told}target="{name}",signal="cost_usd_total",reason="{reason}"}}': text}


def _unpriced(model: str, name: str, reason: str, role: str = "unified") -> Firing:
    return firing(
        "UnpricedGPU",
        "info",
        "cost",
        {"target": name, **labels(model, role)},
        f"{model} on {name}: its GPU time has no price",
        f"Other targets have one. Reason: {reason} - the fleet's cost leaves this target out.",
        "state its price, or whose the GPU is, in the price file",
        f"var-target={name}&{variables(model, role)}",
    )


_UNPRICED = together(
    "UnpricedGPU",
    "others have a price",
    ("59m30s", "61m30s", "110m30s"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        {
            **_PRICED,
            **target("chat"),
            **_signal("chat-0", "no_price", f"{held((90, 0))} stale"),
            **_signal("chat-0", "", f"{NOTHING}x90 {held((31, 1))}"),
        },
        {"61m30s": (_unpriced("chat", "chat-0", "no_price"),)},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        {
            **target("split", role="prefill"),
            **_signal("split-0", "gpu_claimed_twice"),
            # a front end has no GPU
            **target("split", "router", role="frontend"),
            **_signal("router", "other_role"),
        },
        {moment: (_unpriced("split", "split-0", "gpu_claimed_twice", "prefill"),) for moment in ("61m30s", "110m30s")},
    ),
    Story(
        (Kind.FIRES,),
        {**target("two", "two-0"), **_signal("two-0", "price_ambiguous")},
        {moment: (_unpriced("two", "two-0", "price_ambiguous"),) for moment in ("61m30s", "110m30s")},
    ),
    # other reasons are other alerts'
    Story((Kind.BELOW,), {**target("dark"), **_signal("dark-0", "no_gpus")}),
    # of two exporters one has the prices
    Story((Kind.BELOW,), {**target("pair"), **_signal("pair-0", "no_price", instance="a"), **_signal("pair-0", "", 1, "b")}),
    Story(
        (Kind.RESTART,),
        {**target("again"), **_signal("again-0", "no_price", with_gap(0, 30, 10, 81))},
        {"110m30s": (_unpriced("again", "again-0", "no_price"),)},
    ),
    Story((Kind.ABSENT,), target("silent")),
    records=False,
)  # fmt: skip

_NO_PRICES = Case(
    "UnpricedGPU",
    "no target has a price: nobody asked for costs",
    {**target("chat"), **_signal("chat-0", "no_price")},
    "110m30s",
    records=False,
    kinds=frozenset((Kind.ABSENT,)),
)


# --- ReportMissed: due more than a day ago and no success since; for 1h; warning -----------------------------------------------------------

# 23 hours before the history begins: it is a day late after one, and fires after two
_DUE = -82_800
_WEEK = 604_800


def _report(
    cluster: str,
    due: str | float | None,
    success: str | float | None,
    instance: str = "a",
    following: str | float | None = None,
    exporter: str | None = None,
) -> Mapping[str, str]:
    found = {}
    names = "report_due", "report_last_success", "report_next_due"
    values = {f"{name}_timestamp_seconds": value for name, value in zip(names, (due, success, following), strict=True)}
    for name, value in {**values, "exporter_build_info": exporter}.items():
        if value is not None:
            text = value if isinstance(value, str) else held((250, value))
            found[f'llm_serving_{name}{{cluster="{cluster}",instance="{instance}"}}'] = text
    return found


def _until(samples: int, value: float) -> str:
    """A series that ends for good."""
    return f"{held((samples, value))} stale"


def _late(cluster: str, due: str, success: str) -> Firing:
    return firing(
        "ReportMissed",
        "warning",
        "cost",
        {"cluster": cluster},
        f"{cluster} the cost review is overdue by {due}",
        f"The last one that was written, and sent where that is configured: {success} ago.",
        "read the exporter's log for the review's failure",
        f"var-cluster={cluster}",
    )


_MISSED = together(
    "ReportMissed",
    "a day late",
    ("1h50m", "2h10m", "4h"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # the last one was on time; after three hours somebody makes the missing one
        _report("eu", _DUE, held((180, _DUE - _WEEK), (70, 10_800))),
        {"2h10m": (_late("eu", "1d 1h 10m 0s", "8d 1h 10m 0s"),)},
    ),
    Story(
        (Kind.FIRES, Kind.FIRST_WEEK),
        _report("never", _DUE, None),
        {
            "2h10m": (_late("never", "1d 1h 10m 0s", "unknown"),),
            "4h": (_late("never", "1d 3h 0m 0s", "unknown"),),
        },
    ),
    Story((Kind.BELOW,), {**_report("done", _DUE, _DUE), **_report("today", -43_200, _DUE - _WEEK)}),
    # one of a pair makes the review, both know when it was due
    Story((Kind.BELOW,), {**_report("pair", _DUE, None), **_report("pair", _DUE, _DUE + 60, "b")}),
    Story(
        (Kind.RESTART,),
        _report("again", with_gap(_DUE, 90, 10, 150), _DUE - _WEEK),
        # an exporter that is away does not make it come
        {
            "2h10m": (_late("again", "1d 1h 10m 0s", "8d 1h 10m 0s"),),
            "4h": (_late("again", "1d 3h 0m 0s", "8d 3h 0m 0s"),),
        },
    ),
    # the exporter with the schedule is gone for good before its next review is due
    Story(
        (Kind.FIRES,),
        _report(
            "gone",
            _until(40, _DUE - _WEEK),
            _until(40, _DUE - _WEEK),
            following=_until(40, _DUE),
            exporter=_until(40, 1),
        ),
        {
            "2h10m": (_late("gone", "1d 1h 10m 0s", "8d 1h 10m 0s"),),
            "4h": (_late("gone", "1d 3h 0m 0s", "8d 3h 0m 0s"),),
        },
    ),
    # another one has taken over, or nobody wants reviews of it any more
    Story(
        (Kind.BELOW,),
        {
            **_report("taken", _until(40, _DUE - _WEEK), _until(40, _DUE - _WEEK), following=_until(40, _DUE)),
            **_report("taken", _DUE, _DUE + 60, "b", following=_DUE + _WEEK, exporter=held((250, 1))),
            **_report(
                "unasked",
                _until(40, _DUE - _WEEK),
                _until(40, _DUE - _WEEK),
                following=_until(40, _DUE),
                exporter=held((250, 1)),
            ),
        },
    ),
    # one that is there and does nothing
    Story(
        (Kind.FIRES,),
        _report("stuck", _DUE - _WEEK, _DUE - _WEEK, following=_DUE, exporter=held((250, 1))),
        {
            "2h10m": (_late("stuck", "1d 1h 10m 0s", "8d 1h 10m 0s"),),
            "4h": (_late("stuck", "1d 3h 0m 0s", "8d 3h 0m 0s"),),
        },
    ),
    # no schedule, or none that was due yet
    Story((Kind.ABSENT,), _report("none", None, _DUE - _WEEK)),
    records=False,
    rules="cost_clusters",
)


CASES = (_UNPRICED, _NO_PRICES, _MISSED)

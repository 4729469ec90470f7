"""ReportMissed: when it fires and when it does not."""

from __future__ import annotations

from collections.abc import Mapping

from tests.pack.builders import firing, held
from tests.pack.builders_cost import with_gap
from tests.pack.promtool import Firing, Kind, Story, together

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
        {"2h10m": _late("eu", "1d 1h 10m 0s", "8d 1h 10m 0s")},
    ),
    Story(
        (Kind.FIRES, Kind.FIRST_WEEK),
        _report("never", _DUE, None),
        {"2h10m": _late("never", "1d 1h 10m 0s", "unknown"), "4h": _late("never", "1d 3h 0m 0s", "unknown")},
    ),
    Story((Kind.BELOW,), {**_report("done", _DUE, _DUE), **_report("today", -43_200, _DUE - _WEEK)}),
    # one of a pair makes the review, both know when it was due
    Story((Kind.BELOW,), {**_report("pair", _DUE, None), **_report("pair", _DUE, _DUE + 60, "b")}),
    Story(
        (Kind.RESTART,),
        _report("again", with_gap(_DUE, 90, 10, 150), _DUE - _WEEK),
        # an exporter that is away does not make it come
        {"2h10m": _late("again", "1d 1h 10m 0s", "8d 1h 10m 0s"), "4h": _late("again", "1d 3h 0m 0s", "8d 3h 0m 0s")},
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
        {"2h10m": _late("gone", "1d 1h 10m 0s", "8d 1h 10m 0s"), "4h": _late("gone", "1d 3h 0m 0s", "8d 3h 0m 0s")},
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
        {"2h10m": _late("stuck", "1d 1h 10m 0s", "8d 1h 10m 0s"), "4h": _late("stuck", "1d 3h 0m 0s", "8d 3h 0m 0s")},
    ),
    # no schedule, or none that was due yet
    Story((Kind.ABSENT,), _report("none", None, _DUE - _WEEK)),
    records=False,
    rules="cost_clusters",
)


CASES = (_MISSED,)

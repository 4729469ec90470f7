"""CostPerTokenUp and TokenExplosion: when they fire and when they do not."""

from __future__ import annotations

from tests.pack.builders import firing, held
from tests.pack.builders_cost import EVERY, HOUR, labels, recorded, variables, with_gap
from tests.pack.promtool import Firing, Kind, Story, together

# --- CostPerTokenUp: six hours' USD per million tokens above 1.5 x the median of 7 days; for 6h; warning -----------------------------------

_NOW, _USUAL = "cost_usd_per_million_tokens:ratio6h_compared", "cost_usd_per_million_tokens:median7d"


def _price(model: str, now: str | float | None, usual: float | None = 2.0, role: str = "unified") -> dict[str, str]:
    found = {}
    if now is not None:
        found |= recorded(model, _NOW, now if isinstance(now, str) else held((14 * HOUR, now)), role)
    if usual is not None:
        found |= recorded(model, _USUAL, held((14 * HOUR, usual)), role)
    return found


def _dear(model: str, now: str, role: str = "unified") -> Firing:
    return firing(
        "CostPerTokenUp",
        "warning",
        "cost",
        labels(model, role),
        f"{model} ({role}): a million tokens cost {now} USD",
        f"Over six hours, idle and down time included, a million tokens (prompt as sent and generated) cost {now} USD; usually it is "
        "2 (median of 7 days).",
        "see whether the tokens became fewer or the GPUs more",
        variables(model, role),
    )


_PER_TOKEN = together(
    "CostPerTokenUp",
    "dearer than it usually is",
    ("5h52m", "6h12m", "13h2m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        _price("chat", held((12 * HOUR, 3.2), (2 * HOUR, 2))),
        {"6h12m": _dear("chat", "3.2")},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # each pool by its own median
        {**_price("split", 3.5, role="decode"), **_price("split", 2.5, role="prefill")},
        {moment: _dear("split", "3.5", "decode") for moment in ("6h12m", "13h2m")},
    ),
    # half as much again, not more
    Story((Kind.BELOW,), {**_price("even", 3), **_price("calm", 2.9)}),
    # of fewer tokens than a million nothing is recorded to be compared; the median is that of better days
    Story((Kind.LOW_TRAFFIC,), _price("small", None)),
    Story((Kind.FIRST_WEEK,), _price("new", 9, None)),
    # ten minutes without an exporter after three hours: six hours start again, and are over at nine
    Story((Kind.RESTART,), _price("again", with_gap(3.2, 3 * HOUR, 2, 11 * HOUR)), {"13h2m": _dear("again", "3.2")}),
    # without a price there is neither
    Story((Kind.ABSENT,), _price("free", None, None) | recorded("free", "tokens:rate1h", held((14 * HOUR, 500)))),
    interval=EVERY,
)  # fmt: skip


# --- TokenExplosion: tokens/s of an hour above 3 x the median of this hour, that above 100; for 30m; warning -------------------------------

_TOKENS, _MEDIAN = "tokens:rate1h", "tokens:past_hour_median7d"


def _traffic(model: str, now: str | float | None, usual: float | None = 120, role: str = "unified") -> dict[str, str]:
    found = {}
    if now is not None:
        found |= recorded(model, _TOKENS, now if isinstance(now, str) else held((100, now)), role)
    if usual is not None:
        found |= recorded(model, _MEDIAN, held((100, usual)), role)
    return found


def _exploded(model: str, now: str, usual: str = "120", role: str = "unified") -> Firing:
    return firing(
        "TokenExplosion",
        "warning",
        "cost",
        labels(model, role),
        f"{model} ({role}): far more tokens than usual, {now} per second",
        f"Over the last hour it was {now} tokens/s, computed in prefill or generated; at this hour it usually is {usual} (median of the last "
        "days).",
        "find the client: a loop, a job, or prompts that the cache no longer finds",
        variables(model, role),
    )


_EXPLOSION = together(
    "TokenExplosion",
    "far more tokens than at this hour of other days",
    ("29m30s", "31m30s", "90m30s"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        _traffic("chat", held((60, 400), (40, 200))),
        {"31m30s": _exploded("chat", "400")},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # the front end counts what its workers count; where nobody reads them it counts for them
        {
            **_traffic("split", 900, 200, "prefill"),
            **_traffic("split", 300, 200, "decode"),
            **_traffic("split", 1200, 300, "frontend"),
            **_traffic("hidden", 1200, 300, "frontend"),
        },
        {
            moment: (_exploded("split", "900", "200", "prefill"), _exploded("hidden", "1.2k", "300", "frontend"))
            for moment in ("31m30s", "90m30s")
        },
    ),
    Story((Kind.BELOW,), _traffic("calm", 360)),
    Story((Kind.LOW_TRAFFIC,), _traffic("toy", 5000, 100)),
    Story((Kind.FIRST_WEEK,), _traffic("new", 5000, None)),
    Story((Kind.RESTART,), _traffic("again", with_gap(400, 20, 10, 70)), {"90m30s": _exploded("again", "400")}),
    Story((Kind.ABSENT,), _traffic("mute", None)),
    # the prefix cache finds nothing any more, and all is computed again
    Story(
        (Kind.BELOW,),
        {
            **_traffic("uncached", 5000),
            **recorded("uncached", "prefix_cache_hit:ratio_increase30m", held((100, 0.1)), "unified"),
            **recorded("uncached", "prefix_cache_hit:median7d", held((100, 0.6)), "unified"),
        },
    ),
)


CASES = (_PER_TOKEN, _EXPLOSION)

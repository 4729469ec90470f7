"""What the weekly review of a large fleet costs: `.venv/bin/python -m bench.review --targets 1000`.

A stand-in for Prometheus answers at once, out of closed formulas, for a year before the review: counters and presence of the two weeks that
are compared, hourly records of the weeks before. So the time is ours alone: what Prometheus takes for its answers, and JSON, come on top.
One target in ten lacks two hours, one in forty came during the week. A fresh process makes the review and writes its files; its highest
resident memory is printed.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.shared import make_parser, run_fresh
from llm_serving_exporter.clients.json_api import Access, JsonApi, Labels, Prometheus, Sample, Series
from llm_serving_review.command import make, write
from llm_serving_review.evidence import names
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.settings.settings import Settings

NOW = 1_795_500_000.0  # Tuesday, 24 November 2026
MONDAY = 1_794_787_200.0  # of the week before, which is reviewed
HELD_SECONDS = 365 * 86_400.0  # of hourly records
COUNTED_SECONDS = 21 * 86_400.0  # of counters: what a Prometheus keeps as a rule
GPUS, USD, MODELS, TARGETS_OF_NODE = 4.0, 2.5, 20, 2
_LACKS_HOURS = (30, 32)
# what a target counts in an hour, by the labels of the quantity
_GROWTH: dict[str, tuple[tuple[tuple[str, ...], float], ...]] = {
    "cost": tuple(
        ((phase, "reserved", "roofline"), share * GPUS * USD) for phase, share in (("prefill", 0.2), ("decode", 0.5), ("idle", 0.3))
    ),
    "gpu_seconds": ((("busy", "reserved"), 0.7 * GPUS * 3600), (("idle", "reserved"), 0.3 * GPUS * 3600)),
    "energy_cost": (((), 0.1),),
    "savings": (((), 0.2),),
    "slo": ((("ttft", "good"), 990.0), (("ttft", "bad"), 10.0)),
}  # fmt: skip
_PLAIN = ((), 1000.0)
_GAUGES: dict[str, tuple[Labels, float]] = {
    names.PRICE: ({"gpu_name": "H100", "rate": "reserved"}, USD),
    names.TARGET_GPUS: ({"gpu_name": "H100"}, GPUS),
    names.NODE_INFO: ({"zone": "z", "region": "r", "instance_type": "p5.48xlarge"}, 1.0),
}


class StandIn(Prometheus):
    def __init__(self, targets: int) -> None:
        super().__init__(JsonApi(Access("Prometheus", "http://127.0.0.1:9", "--prometheus.url"), 1.0))
        self.cpu_seconds = 0.0  # of its answers
        self._owners = [
            {"target": f"replica-{number}", "model_name": f"model-{number % MODELS}", "role": "unified"}
            for number in range(targets)
        ]

    def now(self) -> float:
        return NOW

    def instant(self, query: str, at_unix_seconds: float | None = None) -> list[Sample]:
        return []

    def raw(self, selector: str, at_unix_seconds: float) -> list[Series]:
        return []

    def runtime_info(self) -> dict[str, Any]:
        return {"storageRetention": "365d"}

    def range(self, query: str, begin: float, end: float, step_seconds: float) -> list[Series]:
        since = time.process_time()
        answer = self._answer(query, begin, end, step_seconds)
        self.cpu_seconds += time.process_time() - since
        return answer

    def _answer(self, query: str, begin: float, end: float, step_seconds: float) -> list[Series]:
        moments = [begin + number * step_seconds for number in range(round((end - begin) / step_seconds) + 1)]
        if query == names.Asking().presence():
            return [
                ({"target": owner["target"], "job": "llm", "instance": f"node-{number // TARGETS_OF_NODE}"}, points)
                for number, owner in enumerate(self._owners)
                if (points := self._list_points(number, 1.0, moments))
            ]
        for quantity in names.QUANTITIES:
            recorded = names.Asking().recorded(quantity)
            if f"increase({names.exported(quantity.counter)}[" in query or query == recorded:
                held = HELD_SECONDS if query == recorded else COUNTED_SECONDS
                moments = [at for at in moments if at > NOW - held]
                return [
                    ({**owner, **dict(zip(quantity.of, of, strict=True))}, points)
                    for of, value in _GROWTH.get(quantity.name, (_PLAIN,))
                    for number, owner in enumerate(self._owners)
                    if (points := self._list_points(number, value, moments))
                ]
        for name, (labels, value) in _GAUGES.items():
            if f"({names.exported(name)}[" in query:
                return [
                    ({**labels, "target": owner["target"], "node": f"node-{number // TARGETS_OF_NODE}"}, points)
                    for number, owner in enumerate(self._owners)
                    if (points := self._list_points(number, value, moments))
                ]
        return []

    @staticmethod
    def _list_points(number: int, value: float, moments: list[float]) -> list[tuple[float, float]]:
        """Of one target, by its number."""
        came = MONDAY + 60 * HOUR_SECONDS if number % 40 == 0 else 0.0
        lost = [MONDAY + hour * HOUR_SECONDS for hour in _LACKS_HOURS] if number % 10 == 0 else [0.0, 0.0]
        # no two values are one object, as in what JSON gives
        return [
            (at, value * (1 + (number + at // 3600) % 24 / 24))
            for at in moments
            if at > came and not lost[0] < at <= lost[1]
        ]


def measure(targets: int) -> None:
    """Makes the review in this process and prints what that took."""
    begin = time.perf_counter()
    asked = StandIn(targets)
    made = make(asked, Settings(), None, lambda text: print(text, file=sys.stderr))
    made_seconds = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        files = write(made, Path(folder), None)
        sizes = sum(path.stat().st_size for path in files)
    used = resource.getrusage(resource.RUSAGE_SELF)
    weeks = sum(one.known is not None for one in made.beyond.trend)
    print(
        f"{targets:,} targets, {weeks} weeks known, {made.invoice_usd:,.2f} USD: made in {made_seconds:.1f} s, written in "
        f"{time.perf_counter() - begin - made_seconds:.1f} s ({sizes / 2**20:.1f} MiB), {used.ru_utime + used.ru_stime:.1f} s of CPU "
        f"({asked.cpu_seconds:.1f} of them the stand-in's), "
        f"highest resident memory {used.ru_maxrss / 1024:.0f} MiB; {len(made.gaps or ())} gaps, {len(made.missing_parts)} parts missing"
    )


def main() -> None:
    parser = make_parser("review", __doc__)
    parser.add_argument("--targets", type=int, default=1000)
    run_fresh(measure, parser.parse_args().targets)


if __name__ == "__main__":
    main()

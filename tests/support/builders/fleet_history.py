"""A simulated fleet's past as text that a database takes in."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TextIO

from llm_serving_exporter.model.record import Struct
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.history import Sample, Watch
from llm_serving_simulator.fleet.pages import labels_text

# --- A scenario's past in minutes: simulated, read through the exporter's stages, written with timestamps for a database to take in.
#
# Two forms: OpenMetrics for `promtool tsdb create-blocks-from openmetrics`, and the lines of VictoriaMetrics' /api/v1/import/prometheus.


# series of a run; what is behind them is only a cache of label texts
_MOST_TEXTS = 200_000


class Form(StrEnum):
    """How samples are written."""

    OPENMETRICS = "openmetrics"  # unix seconds, `# EOF` at the end
    VICTORIAMETRICS = "victoriametrics"  # unix milliseconds


class Written(Struct, frozen=True):
    """What was written."""

    points: int  # in time
    samples: int  # of all series


def write_history(
    fleet: Fleet,
    watch: Watch,
    out: TextIO,
    *,
    until_seconds: float,
    interval_seconds: float,
    form: Form = Form.OPENMETRICS,
    labels: Mapping[str, str] | None = None,
    more: Callable[[float, list[Sample]], Iterable[Sample]] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Written:
    """Advances the fleet to `until_seconds` and writes what `watch` exports at each interval, the fleet's present included.

    `labels` go onto every sample (job, instance: what a scrape adds). `more(unix_seconds, samples)` may give further samples for a point,
    such as a recording rule's. `progress` is told the fleet's seconds at each point. Series without a type: a database does not need one.
    """
    added = dict(labels or {})
    texts: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    begin = fleet.now_seconds
    points = written = 0
    while (at := begin + points * interval_seconds) <= until_seconds:
        fleet.advance(at)
        samples = list(watch.samples())
        unix = fleet.unix_seconds(at)
        if more is not None:
            samples += more(unix, samples)
        stamp = _seconds(unix) if form is Form.OPENMETRICS else str(round(unix * 1000))
        lines = []
        for name, of, value in samples:
            key = (name, tuple(of.items()))
            text = texts.get(key)
            if text is None:
                if len(texts) >= _MOST_TEXTS:
                    texts.clear()
                text = texts[key] = name + labels_text({**of, **added})
            lines.append(f"{text} {value!r} {stamp}\n")
        out.write("".join(lines))
        points += 1
        written += len(lines)
        if progress is not None:
            progress(at)
    if form is Form.OPENMETRICS:
        out.write("# EOF\n")
    return Written(points, written)


def _seconds(unix_seconds: float) -> str:
    """To the millisecond, which is what a database keeps."""
    return f"{unix_seconds:.3f}"

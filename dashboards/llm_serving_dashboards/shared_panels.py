"""What several dashboards share: short ways to make a panel, bands of replicas and of models, the limiter, words and colours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from llm_serving_alerts.alerting.verdicts import GOOD, PAGE, TICKET
from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.records.bands import EDGES, FEW_TARGETS, Figure
from llm_serving_alerts.records.slo import CLOCK, longest
from llm_serving_alerts.rules import ALERT_PREFIX
from llm_serving_dashboards.firing import MOST_CHOSEN
from llm_serving_dashboards.panels import (
    REPLICA_UID,
    Colour,
    Column,
    Draw,
    Look,
    Panel,
    Query,
    ThresholdStep,
    Unit,
    ValueMapping,
    Visualization,
    Worst,
    head_columns,
)
from llm_serving_dashboards.queries import QueryBuilder

# beside those of the record
UNKNOWN, DEAD = 3.0, 4.0
VERDICTS = (
    ValueMapping(GOOD, "fine", Colour.FINE),
    ValueMapping(TICKET, "ticket", Colour.WARNING),
    ValueMapping(PAGE, "page", Colour.BAD),
    ValueMapping(UNKNOWN, "unknown", Colour.UNKNOWN),
    ValueMapping(DEAD, "no exporter", Colour.DEAD),
)


# what sums of counters differ by where they are the same, such as the cost of an hour at one price
_ALIKE = 1.01


def keep_highest(expression: str, most: int) -> str:
    """PromQL of the series with the highest values, of `most` at most: those above the first that would be one too many. So of series that are
    alike all are kept or none."""
    one_too_many = f"min(topk({most + 1}, {expression})) * (count({expression}) > bool {most})"
    return f"{expression} > {_ALIKE:g} * scalar({one_too_many})"


def number_states(states: Iterable[tuple[str, float]]) -> str:
    """PromQL of the number of each state, with the label `state`: series join it instead of being asked state by state."""
    return " or ".join(f'label_replace(vector({number:g}), "state", "{state}", "", "")' for state, number in states)


def warn_below(warning: float, bad: float | None = None) -> tuple[ThresholdStep, ...]:
    """Colours of a value that should be large: a warning below the first threshold, bad below the second."""
    if bad is None:
        return (ThresholdStep(Colour.WARNING), ThresholdStep(Colour.FINE_TEXT, warning))
    return (ThresholdStep(Colour.BAD), ThresholdStep(Colour.WARNING, bad), ThresholdStep(Colour.FINE_TEXT, warning))


def warn_above(warning: float, bad: float | None = None) -> tuple[ThresholdStep, ...]:
    """Colours of a value that should be small: a warning from the first threshold on, bad from the second."""
    steps = (ThresholdStep(Colour.FINE_TEXT), ThresholdStep(Colour.WARNING, warning))
    return steps if bad is None else (*steps, ThresholdStep(Colour.BAD, bad))


# the same on every dashboard: how a request ended, and what time or money went to
REASONS = (("stop", Colour.GOOD), ("length", Colour.PLAIN), ("error", Colour.BAD), ("abort", Colour.UNKNOWN))
PHASES = (("prefill", "super-light-orange"), ("decode", Colour.PLAIN))
SPENT_ON = (*PHASES, ("idle", Colour.UNKNOWN), ("down", Colour.BAD), ("unattributed", Colour.DEAD))

ABSENT = ValueMapping(None, "–", "transparent")  # a dash, as in our documents
# in place of "No data" where money is meant
NO_PRICE = "no price is configured, or too little time has passed"

MODEL = "{{model_name}} {{role}}"
TARGET = "{{target}}"
REPLICA = f"{{{{model_name}}}} {TARGET}"
ENGINE = f"{REPLICA} engine {{{{engine}}}}"


# --- What limits the throughput of models.

# in the order of docs/limiter.md
LIMITERS = (
    # muted, like everything that is fine: nothing is to be repaired
    ("starved", "#46494f"),
    ("bandwidth", Colour.FINE),
    ("compute", "#35506b"),
    ("attention", "light-orange"),
    ("power", "dark-orange"),
    ("batch_limit", "yellow"),
    ("kv_capacity", Colour.WARNING),
    ("prefill_interference", Colour.BAD),
    ("transfer", "purple"),
    ("blocked", "super-light-orange"),
    ("overhead", Colour.DEAD),
    ("stalled", "dark-red"),
    ("unknown", Colour.UNKNOWN),
)
LIMITER_WORDS = tuple(
    ValueMapping(code, state.replace("_", " "), colour) for code, (state, colour) in enumerate(LIMITERS)
)
_CODES = {state: code for code, (state, _) in enumerate(LIMITERS)}
_FIRST_TO_REPAIR = _CODES["attention"]
# more than there are limiters
_PLACES = 100

# --- How replicas and models compare.

_LOWEST, _HIGHEST = EDGES
# of replicas, or of more models than can be drawn one by one
MOST_NAMED = 5
_SHOWN = (
    f" Band: p10 to p90 of a model's replicas, where it has more than {FEW_TARGETS}; with more than {MOST_CHOSEN} models chosen, p10 to p90 of the models' medians. "
    f"By name: the {MOST_NAMED} replicas with the {{worst}} mean over the time range; a click on one opens its dashboard."
)
_OF_MODELS = f" With more than {MOST_CHOSEN} models chosen{{what}}: a band from p10 to p90 of the models, and by name the {MOST_NAMED} with the {{worst}} mean over the time range."
# of one node
MOST_GPUS = 8
_KIND, GPU = "{{gpu_name}}", "{{node}} {{gpu}}"


# --- The builder of a dashboard


class BoardBuilder(QueryBuilder):
    """Makes the panels of one dashboard, with their queries."""

    def time_series(self, title: str, about: str, look: Look, *queries: Query, may_be_empty: str = "") -> Panel:
        """A graph over time."""
        return Panel(title, about, Visualization.TIME_SERIES, look, queries, may_be_empty=may_be_empty)

    def stat(self, title: str, about: str, look: Look, *queries: Query, may_be_empty: str = "") -> Panel:
        """The last value in large type."""
        return Panel(title, about, Visualization.STAT, look, queries, may_be_empty=may_be_empty)

    def timeline(self, title: str, about: str, look: Look, *queries: Query, may_be_empty: str = "") -> Panel:
        """States over time, a row a series."""
        return Panel(title, about, Visualization.STATE_TIMELINE, look, queries, may_be_empty=may_be_empty)

    def table(
        self,
        title: str,
        about: str,
        look: Look,
        columns: tuple[Column | str, ...],
        *queries: str,
        may_be_empty: str = "",
    ) -> Panel:
        """A table with a row for each set of labels, as it is now. `columns`: the name of a label stands for a plain column."""
        asked = tuple(Query(query, instant=True, table=True) for query in queries)
        return Panel(title, about, Visualization.TABLE, look, asked, head_columns(columns), may_be_empty=may_be_empty)

    def share(self, title: str, about: str, look: Look, part: str, whole: str, *, may_be_empty: str) -> Panel:
        """How many there are of how many, as "95 of 96". `part`, `whole`: PromQL that counts; no answer of `part` is 0. The look's thresholds are
        colours by how many are missing."""
        counted = f'count_values("part", ({part}) or vector(0)) * ignoring (part, whole) group_left (whole) count_values("whole", {whole})'
        query = f'label_join({counted}, "said", " of ", "part", "whole") * 0 + scalar({whole}) - scalar(({part}) or vector(0))'
        shown = Query(query, "{{said}}", instant=True)
        return self.stat(title, about, replace(look, unit=Unit.COUNT, named=True), shown, may_be_empty=may_be_empty)

    def list_worst_first(self, name: str, states: str, *worst: int) -> tuple[Query, ...]:
        """Queries of a timeline's rows, a model each, the worst at its top: Grafana draws them query by query, and those of one by name.

        `name`: of these groups on this dashboard; `states`: PromQL of codes; `worst`: the lowest code of each group, by the code at the end of the
        range, the worst first. What is below all of them stands last. Each query reads the models of its own group alone.
        """
        bounds = [
            f">= {code}" + (f" < {above}" if above else "") for code, above in zip(worst, (0, *worst), strict=False)
        ]
        groups = enumerate((*bounds, f"< {worst[-1]}"))
        return tuple(
            Query(self.narrow(f"{name}_{number}", f"({states}) {bound}", "model_name", states), MODEL)
            for number, bound in groups
        )

    def line(self, name: str, legend: str, **equal: str) -> Query:
        """The series of a name, as a line each."""
        return Query(self.select(name, **equal), legend)

    def sum(self, name: str, *level: str, **equal: str) -> str:
        """PromQL of the sum of the series of a name over these labels."""
        return self.aggregate("sum", self.select(name, **equal), *level)

    def find_start(self, alert: str, *level: str) -> str:
        """PromQL of when the condition of an alert began to hold, by these labels. `alert`: its name without the prefix. No answer where the
        ruler does not write it down."""
        return self.aggregate(
            "min", self.select_alerts("ALERTS_FOR_STATE", f'alertname="{ALERT_PREFIX}{alert}"'), *level
        )

    # --- what limits the throughput of models: the panel over time, and its state now

    def find_limiter(self) -> str:
        """PromQL of what limits most replicas of each model, as its place in LIMITERS."""
        return self._find_most(self.select("model:llm_serving_limiter:count"), "model_name", "role")

    def find_replica_limiter(self) -> str:
        """PromQL of what limited the chosen replica for most of five minutes, as its place in LIMITERS: of a minute each it would be a flicker."""
        held = f"avg_over_time({self.select_scraped('limiter')}[5m])"
        return self._find_most(f"round(100 * {self.dialect.one(held, 'target', 'state')})", "target")

    def _find_most(self, counted: str, *level: str) -> str:
        """Of whole numbers by state the place of the highest; of several that are as high, of the first."""
        last = len(LIMITERS)
        # hundreds are what is counted, the rest is the place from behind: the greatest says both, and each series is read once
        places = number_states((state, last - code) for state, code in _CODES.items())
        ranked = f"{counted} * {_PLACES} + on (state) group_left () ({places})"
        return f"{last} - {self.aggregate('max', ranked, *level)} % {_PLACES}"

    def limiter(self, width: int, height: int) -> Panel:
        """What limits the throughput of each model, over time: first those of which there is something to repair."""
        return self.timeline(
            "Limiter",
            "What limits most replicas of a model. Muted, at the bottom: bandwidth and compute use the server well, a starved one lacks requests. Models with something to repair come first. Power: a "
            "cap on watts or heat holds the clock down. Batch limit, KV capacity: throughput rises with a higher limit or more memory. Prefill interference: reduce the prefill budget or use "
            "separate pools. Overhead: kernel launches or the network. See docs/limiter.md.",
            Look(width=width, height=height, mappings=LIMITER_WORDS),
            *self.list_worst_first("limited", self.find_limiter(), _FIRST_TO_REPAIR),
            may_be_empty="no exporter reports a limiter",
        )

    # --- what engines and the front doors before them both tell of, taken once

    def engines_first(self, record: str, **equal: str) -> str:
        """A model's record by role: of a front door only where no engine behind it is read."""
        engines, front = (self.select(record, matcher, **equal) for matcher in ('role!="frontend"', 'role="frontend"'))
        return f"({engines} or {self.match_on('model_name')} {front})"

    def count_once(self, record: str, slo: str, span: float) -> str:
        """Events of an objective over a window: of first tokens those of the clock that is gone by, of others the engines' first."""
        if slo != "ttft":
            return self.engines_first(record, slo=slo)
        clock = CLOCK.format(window=seconds_text(span))
        return f"{self.select(record, slo=slo)} and {self.match_on('model_name', 'role')} {self.select(clock)}"

    def name_clock(self, record: str, slo: str) -> str:
        """An objective's record by model and role; of first tokens that of the clock that pages go by, with the label `clock`."""
        series = self.select(record, slo=slo)
        if slo != "ttft" or self.settings.slo["ttft"].threshold_seconds is None:
            return series
        clock = CLOCK.format(window=seconds_text(longest(self.settings, "fast")))
        # whatever role it counts for
        one = self.aggregate("max", self.select(clock), "model_name", "role", "clock")
        return f"{series} * {self.match_on('model_name', 'role')} group_left (clock) {one}"

    # --- how replicas and models compare, in lines that can be counted whatever their number: median, the band from p10 to p90, and the
    # worst few by name

    def band(self, title: str, about: str, look: Look, figure: Figure, **equal: str) -> Panel:
        """A graph of a figure that each replica has. `equal`: values of the figure's own labels."""
        shown = self.list_band_queries(figure, look.worst, equal)
        about += _SHOWN.format(worst=look.worst.value)
        return self.time_series(title, about, look, *shown)

    def list_band_queries(self, figure: Figure, worst: Worst, equal: dict[str, str]) -> tuple[Query, ...]:
        """Both edges, the median, and the worst few. Of few replicas only their own lines: their median is one of them, or between two."""
        upper, lower = (self.select(figure.edges, rank=rank, **equal) for rank in (_HIGHEST, _LOWEST))
        median = self.select(figure.median, **equal)
        middle = self.hide_below(FEW_TARGETS + 1, "target", median)
        by_target = self.select(figure.each, **equal)
        return (
            Query(self.hide_of_many(upper), f"{_HIGHEST} {MODEL}", draw=Draw.TOP_EDGE),
            Query(self.hide_of_many(lower), f"{_LOWEST} {MODEL}", draw=Draw.BOTTOM_EDGE),
            Query(self.hide_of_many(middle), f"median {MODEL}", draw=Draw.MAIN),
            *self._band_models(median, "medians"),
            Query(self.find_worst(by_target, worst, MOST_NAMED, "target"), REPLICA, replica_uid=REPLICA_UID),
        )

    def model_graph(self, title: str, about: str, look: Look, *lines: Query, may_be_empty: str = "") -> Panel:
        """A graph of figures that each model has. `lines`: queries with a series a model; of many models the first alone is drawn."""
        word = lines[0].legend.partition("{{")[0].strip(" (") if len(lines) > 1 else ""
        about += _OF_MODELS.format(what=f", {word} alone" if word else "", worst=look.worst.value)
        return self.time_series(title, about, look, *self.draw_models(look.worst, *lines), may_be_empty=may_be_empty)

    def draw_models(self, worst: Worst, *lines: Query) -> tuple[Query, ...]:
        """The lines of few models; of many the band of the first and the worst few by name."""
        first = lines[0]
        many = self._hide_of_few(first.expr)
        return (
            *(replace(line, expr=self.hide_of_many(line.expr)) for line in lines),
            *self._band_models(first.expr, "models"),
            replace(first, expr=self.find_worst(many, worst, MOST_NAMED, "model_name")),
        )

    def draw_parts(self, expression: str, part: str) -> tuple[Query, ...]:
        """What can be added up, by a label of its own (a reason, a state): of few models the parts of each, of many those of all together."""
        return (
            Query(self.hide_of_many(expression), f"{{{{{part}}}}} {MODEL}"),
            Query(self.aggregate("sum", self._hide_of_few(expression), part), f"{{{{{part}}}}}"),
        )

    def _band_models(self, expression: str, of: str) -> tuple[Query, Query]:
        upper, lower = (
            Query(f"quantile({EDGES[rank]:g}, {self._hide_of_few(expression)})", f"{rank} of {of}", draw=draw)
            for rank, draw in ((_HIGHEST, Draw.TOP_EDGE), (_LOWEST, Draw.BOTTOM_EDGE))
        )
        return upper, lower

    def gpu_band(
        self, title: str, about: str, look: Look, figure: Figure, *others: Query, may_be_empty: str = ""
    ) -> Panel:
        """A graph of a figure that each GPU has: a line each of few, else the worst three, before the median and the band of all GPUs of the kind.

        `others`: queries beside them.
        """
        upper, lower = (self.select(figure.edges, rank=rank) for rank in (_HIGHEST, _LOWEST))
        own, median = self.select(figure.each), self.select(figure.median)
        worst = self.find_worst(own, look.worst, FEW_TARGETS, "gpu")
        shown = (
            f" With more than {MOST_GPUS} GPUs chosen, only the {FEW_TARGETS} with the {look.worst.value} mean over the time range. Grey band: p10 to p90 of all GPUs of the same kind, where "
            f"there are more than {FEW_TARGETS}."
        )
        return self.time_series(
            title,
            about + shown,
            look,
            Query(upper, f"{_HIGHEST} {_KIND}", draw=Draw.TOP_EDGE),
            Query(lower, f"{_LOWEST} {_KIND}", draw=Draw.BOTTOM_EDGE),
            Query(self.hide_below(FEW_TARGETS + 1, "gpu", median), f"median {_KIND}", draw=Draw.MAIN),
            Query(self.hide_above(MOST_GPUS, "gpu", own), GPU),
            Query(self.hide_below(MOST_GPUS + 1, "gpu", worst), GPU),
            *others,
            may_be_empty=may_be_empty,
        )

    def hide_of_many(self, expression: str) -> str:
        """What is drawn beside a model's first line, of few chosen models only."""
        return self.hide_above(MOST_CHOSEN, "model_name", expression)

    def _hide_of_few(self, expression: str) -> str:
        return self.hide_below(MOST_CHOSEN + 1, "model_name", expression)

"""Cases of alerts as promtool unit tests: written in Python, judged by promtool. `python -m tests.pack.write FOLDER` writes its files.

A case says what Prometheus has seen and which alerts fire then, with every label and annotation. Each case that fires is also run with
everything scraped twice, by a pair of exporters: nothing may change. Stories, each of its own model or target, may share a history:
a run costs about a second whatever stands in it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from llm_serving_exporter.model.record import replace
from tests.pack.rulesets import RULESETS, group_order
from tests.support.paths import ROOT

# the committed rules
RENDERED = (str(ROOT / "alerts/rendered/records.yml"), str(ROOT / "alerts/rendered/alerts.yml"))

# a promtool test file
Document = dict[str, Any]


class Kind(StrEnum):
    """What a case shows of an alert."""

    FIRES = "fires"
    BELOW = "just below its threshold"
    NOT_YET = "before its for is over"
    ONE_REPLICA = "a model of one replica"
    ABSENT = "without the series that it rests on"
    RESTART = "counters fall to 0, a young target"
    LOW_TRAFFIC = "too few events"
    FIRST_WEEK = "no history yet"
    RECOVERY = "silent again"
    ROLES = "replicas of one phase only, front ends"
    TWO_MODELS = "only one of two models is affected"


# what is looked at later than this is a document of its own
LONG_MINUTES = 360.0


@dataclass(frozen=True)
class Firing:
    """An alert as it has to fire: all labels beside alertname, all annotations."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


# what fires at a moment: one or several, () for silence
Fires = Firing | tuple[Firing, ...]


@dataclass(frozen=True)
class Case:
    """`series`: selectors with values in promtool's notation ("0+60x30"), a value every `interval`. `when`: the moments of looking,
    with what fires then; one moment alone is one of silence.

    Where a recorded series (level:…) is given only the alerts are evaluated, so that a baseline of seven days is one line; likewise
    where `records` says that the alert rests on none. `doubled`: whether to run it once more with every scraped series twice.
    `rules`: a name in rulesets.py, "" for the check's own set there, or else for all rules with the default settings.
    """

    alert: str
    name: str
    series: Mapping[str, str]
    when: str | Mapping[str, Fires]
    interval: str = "1m"
    doubled: bool = True
    records: bool = True
    kinds: Collection[Kind] = ()
    rules: str = ""

    @property
    def looks(self) -> tuple[tuple[str, tuple[Firing, ...]], ...]:
        """Every moment with what fires then."""
        if isinstance(self.when, str):
            return ((self.when, ()),)
        return tuple((moment, (fires,) if isinstance(fires, Firing) else fires) for moment, fires in self.when.items())


def row(name: str, series: Mapping[str, str], when: str | Mapping[str, Fires], **more: Any) -> Case:
    """A case of an alert that `cases` names."""
    return Case("", name, series, when, **more)


def cases(alert: str, *rows: Case, **shared: Any) -> tuple[Case, ...]:
    """Cases of one alert, each with a history of its own. `shared`: fields of a case that are the same in all."""
    return tuple(replace(one, alert=alert, **shared) for one in rows)


@dataclass(frozen=True)
class Story:
    """What happens to one model or target: of names that no other story of the history has. `fires`: by moment, one or several; silent at
    every other."""

    kinds: tuple[Kind, ...]
    series: Mapping[str, str]
    fires: Mapping[str, Fires] = field(default_factory=dict)

    def firing_at(self, moment: str) -> tuple[Firing, ...]:
        """What fires then."""
        firing = self.fires.get(moment, ())
        return (firing,) if isinstance(firing, Firing) else firing


def together(
    alert: str,
    name: str,
    moments: tuple[str, ...],
    *stories: Story,
    doubled: bool = True,
    records: bool = True,
    interval: str = "1m",
    rules: str = "",
) -> Case:
    """Stories of one alert in one history, looked at at each of the moments."""
    merged: dict[str, str] = {}
    for story in stories:
        if shared := merged.keys() & story.series.keys():
            raise ValueError(f"{alert}: two stories have {sorted(shared)[0]}")
        if unknown := set(story.fires) - set(moments):
            raise ValueError(f"{alert}: nobody looks at {sorted(unknown)}")
        merged |= story.series
    kinds = {kind for story in stories for kind in story.kinds}
    if len(stories) > 1 and any(story.fires for story in stories):
        kinds.add(Kind.TWO_MODELS)
    when = {moment: tuple(one for story in stories for one in story.firing_at(moment)) for moment in moments}
    return Case(alert, name, merged, when, interval, doubled, records, frozenset(kinds), rules)


@dataclass(frozen=True)
class Sampled:
    """What recording rules make of a history. `expected`: PromQL -> its samples, by series. `doubled` as for cases."""

    name: str
    series: Mapping[str, str]
    at: str
    expected: Mapping[str, Mapping[str, float]]
    interval: str = "1m"
    doubled: bool = True


def variants(cases: Iterable[Case]) -> Iterable[Case]:
    """The cases, and those that fire once more over duplicate scrapes, up to the first moment at which something fires."""
    for case in cases:
        yield case
        twice = doubled(case.series)
        fires = [number for number, (_, firing) in enumerate(case.looks) if firing]
        if case.doubled and twice != case.series and fires:
            yield replace(case, name=f"{case.name}, scraped twice", series=twice, when=dict(case.looks[: fires[0] + 1]))


def doubled(series: Mapping[str, str]) -> dict[str, str]:
    """Every scraped series once more under another instance; recorded ones have one value by identity already."""
    found = dict(series)
    for selector, values in series.items():
        if ":" not in selector.partition("{")[0]:
            found[_with(selector, "instance", "exporter-b:10077")] = values
    return found


def _with(selector: str, label: str, value: str) -> str:
    name, _, rest = selector.partition("{")
    rest = re.sub(rf'(^|,){label}="[^"]*"', "", rest.removesuffix("}")).lstrip(",")
    return f'{name}{{{label}="{value}"' + (f",{rest}" if rest else "") + "}"


def document(cases: Iterable[Case], records: Iterable[Sampled] = (), evaluated: str = "1m") -> Document:
    """A promtool test file without its rule files. `evaluated`: how often the rules are."""
    tests = [*map(_test, variants(cases))]
    for record in records:
        tests.append(_sampled(record))
        if record.doubled:
            again = replace(record, name=f"{record.name}, scraped twice", series=doubled(record.series))
            tests.append(_sampled(again))
    return {"rule_files": [], "evaluation_interval": evaluated, "tests": tests}


def _inputs(series: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def _test(case: Case) -> dict[str, Any]:
    return {
        "name": f"{case.alert}: {case.name}",
        "interval": case.interval,
        "input_series": _inputs(case.series),
        "alert_rule_test": [
            {
                "eval_time": at,
                "alertname": f"LLMServing{case.alert}",
                "exp_alerts": [
                    {"exp_labels": dict(one.labels), "exp_annotations": dict(one.annotations)} for one in firing
                ],
            }
            for at, firing in case.looks
        ],
    }


def _sampled(record: Sampled) -> dict[str, Any]:
    return {
        "name": record.name,
        "interval": record.interval,
        "input_series": _inputs(record.series),
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": record.at,
                "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
            }
            for expression, samples in record.expected.items()
        ],
    }


def split_long(case: Case) -> Iterable[Case]:
    """The moments of the first hours apart from those after: promtool evaluates every rule of each minute until it looks."""
    first, last = (
        {at: firing for at, firing in case.looks if (_minutes(at) > LONG_MINUTES) is long} for long in (False, True)
    )
    if case.interval != "1m" or not first or not last:
        yield case
        return
    for when in (first, last):
        yield replace(case, when=when)


# moments times series, a fixed cost of each moment among them: about a second of promtool's time, and what is split at all
_QUICK, _WHOLE = 25_000, 35_000


def split_quick(made: Document) -> tuple[Document, Document | None]:
    """A test file as its first histories that are judged in about a second, and the others; None where they are not worth it: where the
    whole is judged in a few, or only alerts are, over what others would have recorded."""
    weights = [_weigh(test, _minutes(made["evaluation_interval"])) for test in made["tests"]]
    if sum(weights) < _WHOLE or not any("record" in file for file in made["rule_files"]):
        return made, None
    first = [0, *(number for number in range(1, len(weights)) if sum(weights[: number + 1]) < _QUICK)]
    quick, others = made["tests"][: len(first)], made["tests"][len(first) :]
    return {**made, "tests": quick}, {**made, "tests": others} if others else None


def weigh(made: Document) -> float:
    """Moments times series of a test file, of which promtool takes some 20,000 a second."""
    return sum(_weigh(test, _minutes(made["evaluation_interval"])) for test in made["tests"])


def _weigh(test: Mapping[str, Any], every: float) -> float:
    looks = [one["eval_time"] for kind in ("alert_rule_test", "promql_expr_test") for one in test.get(kind) or ()]
    return max(map(_minutes, looks)) / every * (200 + len(test["input_series"]))


def _minutes(moment: str) -> float:
    units = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+)([smhd])", moment))


def documents(name: str, cases: Iterable[Case]) -> dict[str, Document]:
    """The test files of a check, for each alert: one over raw series with all rules, one with what is looked at hours later (`long`), one
    over recorded series with the alerts alone; others likewise where cases ask for other rules."""
    found: dict[tuple[str, str, str], list[Case]] = {}
    for case in (part for whole in cases for part in split_long(whole)):
        recorded = not case.records or any(":" in selector.partition("{")[0] for selector in case.series)
        rules = case.rules or (name if name in RULESETS else "")
        kind = "recorded" if recorded else "raw" if _minutes(case.looks[0][0]) <= LONG_MINUTES else "long"
        found.setdefault((rules, case.alert, kind), []).append(case)
    made = {}
    for (rules, alert, kind), of_kind in found.items():
        rendered = rule_files(rules)
        evaluated = RULESETS[rules].evaluated if rules else "1m"
        title = name if rules in ("", name) else f"{name}.{rules}"
        files = rendered if kind != "recorded" else (*_beside(rules), *rendered[1:])
        made[f"{title}.{alert}.{kind}.yml"] = attach_rules(document(of_kind, evaluated=evaluated), files, rules)
    return made


def _beside(rules: str) -> tuple[str, ...]:
    return (f"rules/{rules}.beside.yml",) if rules and RULESETS[rules].beside else ()


def rule_files(rules: str) -> tuple[str, str]:
    """Where records and alerts of a set stand, as seen from a test file."""
    return (f"rules/{rules}.records.yml", f"rules/{rules}.alerts.yml") if rules else RENDERED


def attach_rules(made: Mapping[str, Any], files: Iterable[str], rules: str = "") -> Document:
    """A test file over these rule files, of a set or of all rules."""
    return {**made, "rule_files": list(files), "group_eval_order": group_order(rules)}

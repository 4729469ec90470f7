"""PromQL for panels: names that the catalogue or the rules have, narrowed to what the viewer chose."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_alerts.promql import Dialect, buckets, series
from llm_serving_alerts.reference import record_labels
from llm_serving_alerts.render import RECORDS, rule_groups
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.catalogue import BY_NAME

# Grafana's own: four scrapes at least, and no less than what a pixel covers
RATE = "$__rate_interval"


def recorded(settings: Settings) -> dict[str, tuple[str, ...]]:
    """The labels of every recorded series by its name; which there are depends on the windows of the settings."""
    identity = settings.identity_labels
    labels = record_labels(rule_groups(settings)[RECORDS])
    return {name: tuple(label for label in found if label not in identity) for name, found in labels.items()}


class Asking:
    """Queries of one dashboard. `variables`: the labels by which its viewers choose; each is matched where a series has it. `records`: of
    `recorded`."""

    def __init__(self, settings: Settings, variables: tuple[str, ...], records: Mapping[str, tuple[str, ...]]) -> None:
        self.settings = settings
        self._records = records
        self.dialect = Dialect(settings.identity_labels)
        self._variables = variables

    def of(self, name: str, matchers: str = "", **equal: str) -> str:
        """A selector of a series, of a recorded one by its whole name, of an exported one by its name in the catalogue.

        Raises KeyError where nobody makes it.
        """
        narrowed = self._narrowed(name, matchers)
        if ":" not in name:
            return series(name, narrowed, **equal)
        matched = ",".join(
            [*(f'{label}="{value}"' for label, value in equal.items()), *([narrowed] if narrowed else [])]
        )
        return f"{name}{{{matched}}}" if matched else name

    def buckets(self, histogram: str) -> str:
        """A selector of a histogram's buckets."""
        return buckets(histogram, self._narrowed(histogram))

    def one(self, name: str, *level: str, matchers: str = "", **equal: str) -> str:
        """An exported series with one value for these labels: pairs and double scrapes show once."""
        return self.dialect.one(self.of(name, matchers, **equal), *level)

    def by(self, operator: str, expression: str, *level: str) -> str:
        """`sum by (…) (…)` with the identity labels."""
        return f"{operator} by ({self.dialect.labels(*level)}) ({expression})"

    def on(self, *level: str) -> str:
        """`on (…)` with the identity labels."""
        return f"on ({self.dialect.labels(*level)})"

    def alerts(self, matchers: str) -> str:
        """Alerts that fire, of those whom the viewer chose and of nobody in particular."""
        chosen = [f'{label}=~"${label}"' for label in self.settings.identity_labels]
        chosen += [f'{label}=~"${label}|"' for label in self._variables]
        matched = ",".join(['alertstate="firing"', matchers, *chosen])
        return f"ALERTS{{{matched}}}"

    def choices(self, variable: str) -> str:
        """What a variable offers: values of a label of series that are there whatever the targets do, narrowed by the variables before it."""
        before = [*self.settings.identity_labels, *self._variables]
        narrowing = ",".join(f'{label}=~"${label}"' for label in before[: before.index(variable)])
        return f"label_values({series(_SOURCE.get(variable, 'target_info'), narrowing)}, {variable})"

    def readers(self) -> str:
        """Models that finished requests and have never generated a token, of the identities that the viewer chose."""
        chosen = ",".join(f'{label}=~"${label}"' for label in self.settings.identity_labels)
        finished, decoded = (
            self.by("sum", series(name, chosen), "model_name")
            for name in ("requests_finished_total", "decode_tokens_total")
        )
        return f"{finished} > 0 unless {self.on('model_name')} {decoded} > 0"

    def _narrowed(self, name: str, matchers: str = "") -> str:
        labels = self._records[name] if ":" in name else BY_NAME[name].labels
        chosen = [f'{label}=~"${label}"' for label in self.settings.identity_labels]
        chosen += [f'{label}=~"${label}"' for label in self._variables if label in labels]
        return ",".join([*([matchers] if matchers else []), *chosen])


# where a variable's values are read, if not from the targets
_SOURCE = dict.fromkeys(("node", "gpu_name", "gpu"), "gpu_up")

"""PromQL for panels: series that the catalogue or the rules define, narrowed to what the viewer chose."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_alerts.promql import Dialect, buckets, series
from llm_serving_alerts.reference import record_labels
from llm_serving_alerts.render import RECORDS, rule_groups
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.catalogue import BY_NAME

# Grafana's own: at least four scrapes, and at least what a pixel covers
RATE = "$__rate_interval"
# series that offer a variable's values, where these are not the targets
_VARIABLE_SOURCES = dict.fromkeys(("node", "gpu_name", "gpu"), "gpu_up")


def list_record_labels(settings: Settings) -> dict[str, tuple[str, ...]]:
    """The labels of every recorded series by its name, without the identity labels. The settings' windows decide which series there are."""
    identity = settings.identity_labels
    labels = record_labels(rule_groups(settings)[RECORDS])
    return {name: tuple(label for label in found if label not in identity) for name, found in labels.items()}


class QueryBuilder:
    """Builds the queries of one dashboard.

    `variables`: labels that its viewers choose by; a selector matches each of them that its series has.
    `records`: the result of `list_record_labels`.
    """

    def __init__(self, settings: Settings, variables: tuple[str, ...], records: Mapping[str, tuple[str, ...]]) -> None:
        self.settings = settings
        self._records = records
        self.dialect = Dialect(settings.identity_labels)
        self._variables = variables

    def select(self, name: str, matchers: str = "", **equal: str) -> str:
        """A selector of a series. A recorded series has its whole name, an exported one its name in the catalogue.

        Raises KeyError for a series that neither the exporter nor the rules make.
        """
        narrowed = self._write_matchers(name, matchers)
        if ":" not in name:
            return series(name, narrowed, **equal)
        matched = ",".join(
            [*(f'{label}="{value}"' for label, value in equal.items()), *([narrowed] if narrowed else [])]
        )
        return f"{name}{{{matched}}}" if matched else name

    def select_buckets(self, histogram: str) -> str:
        """A selector of the buckets of an exported histogram."""
        return buckets(histogram, self._write_matchers(histogram))

    def select_one(self, name: str, *level: str, matchers: str = "", **equal: str) -> str:
        """An exported series with one value for each set of these labels: a pair of exporters or a double scrape counts once."""
        return self.dialect.one(self.select(name, matchers, **equal), *level)

    def aggregate(self, operator: str, expression: str, *level: str) -> str:
        """`operator by (…) (expression)` over these labels and the identity labels."""
        return f"{operator} by ({self.dialect.labels(*level)}) ({expression})"

    def match_on(self, *level: str) -> str:
        """`on (…)` with these labels and the identity labels."""
        return f"on ({self.dialect.labels(*level)})"

    def select_firing_alerts(self, matchers: str) -> str:
        """Firing alerts of what the viewer chose, and those that lack the label that was chosen by."""
        chosen = [f'{label}=~"${label}"' for label in self.settings.identity_labels]
        chosen += [f'{label}=~"${label}|"' for label in self._variables]
        matched = ",".join(['alertstate="firing"', matchers, *chosen])
        return f"ALERTS{{{matched}}}"

    def list_choices(self, variable: str) -> str:
        """Grafana's query for a variable's values, narrowed by the variables before it. Its series stay when targets are down."""
        before = [*self.settings.identity_labels, *self._variables]
        narrowing = ",".join(f'{label}=~"${label}"' for label in before[: before.index(variable)])
        return f"label_values({series(_VARIABLE_SOURCES.get(variable, 'target_info'), narrowing)}, {variable})"

    def select_models_without_decode(self) -> str:
        """Models of the chosen identities that have finished requests and have never generated a token."""
        chosen = ",".join(f'{label}=~"${label}"' for label in self.settings.identity_labels)
        finished, decoded = (
            self.aggregate("sum", series(name, chosen), "model_name")
            for name in ("requests_finished_total", "decode_tokens_total")
        )
        return f"{finished} > 0 unless {self.match_on('model_name')} {decoded} > 0"

    def _write_matchers(self, name: str, matchers: str = "") -> str:
        labels = self._records[name] if ":" in name else BY_NAME[name].labels
        chosen = [f'{label}=~"${label}"' for label in self.settings.identity_labels]
        chosen += [f'{label}=~"${label}"' for label in self._variables if label in labels]
        return ",".join([*([matchers] if matchers else []), *chosen])

"""What runbooks have of the rules, and the rules of runbooks: each alert's expression in its runbook, the runbook's queries as a link."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from importlib import resources
from urllib.parse import quote

from llm_serving_alerts.promql_tree import lay_out
from llm_serving_alerts.rules import AlertRule

# --- What runbooks have of the rules themselves: each alert's expression, written into its file.

EXPRESSION_HEADING = "## Expression"
_ABOUT = (
    "With the default settings, a word a clause; `make generate` writes this section from alerts/llm_serving_alerts."
)
_OFF = "The default settings do not ask for this alert."


def write_expressions(rules: Iterable[AlertRule]) -> str:
    """The expressions of an alert as Markdown, one block a severity; a sentence where there is none."""
    by_severity = {rule.labels["severity"]: lay_out(rule.explained) for rule in rules}
    if not by_severity:
        return f"{_OFF}\n"
    parts = []
    for severity, expression in by_severity.items():
        title = f"{severity}:\n" if len(by_severity) > 1 else ""
        parts.append(f"{title}```promql\n{expression}\n```\n")
    return "\n".join(parts)


def complete_runbook(runbook: str, rules: Iterable[AlertRule]) -> str:
    """A runbook with its last section, the expressions of its alert, as they are now."""
    written = runbook.split(f"\n{EXPRESSION_HEADING}\n")[0].rstrip("\n")
    return f"{written}\n\n{EXPRESSION_HEADING}\n\n{_ABOUT}\n\n{write_expressions(rules)}"


# --- The queries of an alert's runbook as one link, filled in with the labels of the alert: what somebody who was woken would copy by
# hand.

PLACE = "{queries}"  # in the setting, where the queries belong
# words of the runbooks -> the label that they stand for
_LABELS = {
    "MODEL": "model_name",
    "RUNTIME": "runtime",
    "WORKLOAD": "workload",
    "TARGET": "target",
    "NODE": "node",
    "GPU-UUID": "gpu",
}
_WORD = re.compile(rf'"({"|".join(_LABELS)})"')
_UNKNOWN = re.compile(r'"[A-Z][A-Z-]+"')
_BLOCK = re.compile(r"^```promql\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@cache
def read_queries(runbook: str) -> tuple[str, ...]:
    """The queries of a packaged runbook, in their order; () where there is no such file."""
    file = resources.files("llm_serving_alerts").joinpath(f"runbooks/{runbook}.md")
    if not file.is_file():
        return ()
    by_hand = file.read_text(encoding="utf-8").split(f"\n{EXPRESSION_HEADING}\n")[0]
    return tuple(query.strip() for query in _BLOCK.findall(by_hand))


def link_queries(url: str, queries: Sequence[str], labels: Collection[str]) -> str:
    """An annotation's template: the link with each query in a panel of its own, as Prometheus' page and vmui take them. `labels`: that the
    alert carries; a query about anything else is left out. "" where none is left."""
    asked = [query for query in queries if _is_filled(query, labels)]
    panels = "&".join(f"g{number}.expr={_write(query)}&g{number}.tab=0" for number, query in enumerate(asked))
    return url.replace(PLACE, panels) if asked else ""


def _is_filled(query: str, labels: Collection[str]) -> bool:
    needed = {_LABELS[word] for word in _WORD.findall(query)}
    return needed <= {*labels} and not _UNKNOWN.search(_WORD.sub("", query))


def _write(query: str) -> str:
    """A query in a URL, with the labels' values quoted as PromQL wants them."""
    parts = _WORD.split(query)
    filled = (
        quote(part, safe="") if number % 2 == 0 else f'{{{{ printf "%q" $labels.{_LABELS[part]} | urlquery }}}}'
        for number, part in enumerate(parts)
    )
    return "".join(filled)

"""What runbooks have of the rules themselves: each alert's expression, written into its file."""

from __future__ import annotations

from collections.abc import Iterable

from llm_serving_alerts.layout import lay_out
from llm_serving_alerts.rules import AlertRule

EXPRESSION_HEADING = "## Expression"
_ABOUT = (
    "With the default settings, a word a clause; `make generate` writes this section from alerts/llm_serving_alerts."
)
_OFF = "The default settings do not ask for this alert."


def write_expressions(rules: Iterable[AlertRule]) -> str:
    """The expressions of an alert as Markdown, one block a severity; a sentence where there is none."""
    found = {rule.labels["severity"]: lay_out(rule.explained) for rule in rules}
    if not found:
        return f"{_OFF}\n"
    parts = []
    for severity, expression in found.items():
        title = f"{severity}:\n" if len(found) > 1 else ""
        parts.append(f"{title}```promql\n{expression}\n```\n")
    return "\n".join(parts)


def complete_runbook(runbook: str, rules: Iterable[AlertRule]) -> str:
    """A runbook with its last section, the expressions of its alert, as they are now."""
    written = runbook.split(f"\n{EXPRESSION_HEADING}\n")[0].rstrip("\n")
    return f"{written}\n\n{EXPRESSION_HEADING}\n\n{_ABOUT}\n\n{write_expressions(rules)}"

"""Links from the page to the pack's dashboards at the time that a figure is of; none where the settings do not say where Grafana is.

The dashboards are a package of their own that the exporter does not import; a test compares the names below with what it writes.
"""

from __future__ import annotations

from urllib.parse import urlencode

from llm_serving_review.figures.review import Review

# uid of each dashboard that the page leads to
COST, HOME, LATENCY, EXPORTER = "llm-serving-cost", "llm-serving-home", "llm-serving-latency", "llm-serving-exporter"
BOARDS = (COST, HOME, LATENCY, EXPORTER)
# Grafana's variables, of the boards that have them
MODEL_VARIABLE, TARGET_VARIABLE = "model_name", "target"
_HOUR_SECONDS = 3600.0


def link_board(review: Review, board: str, begin: float, end: float, **variables: str) -> str:
    """A dashboard from one moment to another, Unix seconds; variables by name, "" = whatever the dashboard shows. "" without a Grafana."""
    if not review.dashboards_url:
        return ""
    chosen = [(f"var-{name}", value) for name, value in variables.items() if value]
    query = urlencode([("from", str(round(1000 * begin))), ("to", str(round(1000 * end))), *chosen])
    return f"{review.dashboards_url}/d/{board}?{query}"


def link_week(review: Review, board: str, **variables: str) -> str:
    """A dashboard over what is reviewed."""
    return link_board(review, board, review.week.begin, review.week.end, **variables)


def link_hour(review: Review, board: str, begin: float, **variables: str) -> str:
    """A dashboard at an hour, with one before and two after it."""
    return link_board(review, board, begin - _HOUR_SECONDS, begin + 3 * _HOUR_SECONDS, **variables)

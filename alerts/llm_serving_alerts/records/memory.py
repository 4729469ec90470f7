"""How the memory of what was there ends before its horizon: by what the settings say is retired."""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_alerts.promql import Dialect, clauses
from llm_serving_alerts.retired import Retired
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.model.text import escape_label_value


def unless_retired(
    dialect: Dialect, settings: Settings, expression: str, select: Callable[[str], str], *level: str
) -> str:
    """The expression without what is retired. `select`: matchers -> series of the same level that are there as long as the expression may
    hold; an entry of the settings chooses among them."""
    on = dialect.labels(*level)
    for one in settings.retired:
        now = f"unless on ({on}) ({select(_matchers(one))}) * 0 + time() < {one.until_unix_seconds:.0f}"
        expression = f"{expression}\n{clauses(('the settings say that it is retired until then', now))}"
    return expression


def _matchers(one: Retired) -> str:
    labels = {"model_name": one.model_name, **({"role": one.role} if one.role else {}), **one.labels}
    return ",".join(f'{name}="{escape_label_value(text)}"' for name, text in labels.items())

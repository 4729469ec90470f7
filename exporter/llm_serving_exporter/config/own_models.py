"""`model_catalogue`: whether a user's own models can be used, found out before anything listens."""

from __future__ import annotations

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.schema.problems import Place

SHOW_FIX = "Write each model as [[model]] with a name and config = { model_type = …, hidden_size = …, … }, see docs/ceiling-command.md."


def check_models(path: str, place: Place) -> None:
    """Refuses, at its place, a path whose files hold no models or one that cannot be understood: the file, the row and the key."""
    # the formulas are read by a process that has such a path only
    from llm_serving_exporter.facts import loader

    try:
        loader.own_models(path)
    except FactsError as error:
        fix = error.fix[:1].upper() + error.fix[1:] if error.fix else SHOW_FIX
        place.refuse(error.what.rstrip("."), fix if fix.endswith(".") else f"{fix}.")

"""How a failed exchange travels inside this stage, until `http` turns it into a `Refusal`."""

from __future__ import annotations

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.attempt import FailureReason
from llm_serving_exporter.model.text import on_one_line

EXCERPT_CHARACTERS = 200


class ScrapeError(LLMServingExporterError):
    """An exchange that ended with a named reason; never leaves the stage.

    `detail` is a sentence for a person, without secrets; `status` the HTTP status where one came.
    """

    def __init__(self, reason: FailureReason, detail: str, status: int | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.status = status


def one_line(text: str) -> str:
    """First line with any content of a text from outside: printable, blanks collapsed, at most 200 characters."""
    return next((shown for line in text.splitlines() if (shown := on_one_line(line, EXCERPT_CHARACTERS))), "")

"""The error of a failed exchange inside this stage; `http` turns it into a `Refusal`."""

from __future__ import annotations

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.text import on_one_line

EXCERPT_CHARACTERS = 200


class ScrapeError(LLMServingExporterError):
    """An exchange that ended with a named reason; never leaves the stage.

    `detail` is a sentence for the user, without secrets; `status` is the HTTP status, None where no answer came.
    """

    def __init__(self, reason: FailureReason, detail: str, status: int | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.status = status


def quote_first_line(text: str) -> str:
    """The first line that is not blank, printable and at most 200 characters long; "" where there is none."""
    return next((shown for line in text.splitlines() if (shown := on_one_line(line, EXCERPT_CHARACTERS))), "")

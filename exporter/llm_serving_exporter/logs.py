"""Log lines as logfmt or JSON on standard error: one line a record, secrets never in it."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from llm_serving_exporter.model.text import hide_credentials

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_NAMES = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warn",
    logging.ERROR: "error",
    logging.CRITICAL: "error",
}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' ="\\\n\r\t') else text


class _Formatter(logging.Formatter):
    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {
            "ts": when,
            "level": _NAMES.get(record.levelno, record.levelname.lower()),
            "logger": record.name.removeprefix("llm_serving_exporter."),
            "msg": hide_credentials(record.getMessage()),
        }
        if record.exc_info:
            fields["traceback"] = hide_credentials(self.formatException(record.exc_info))
        return fields


class LogfmtFormatter(_Formatter):
    """`ts=… level=info logger=target msg="…"`, as Prometheus' own programs write."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return " ".join(f"{key}={_quoted(value)}" for key, value in self.fields(record).items())


class JsonFormatter(_Formatter):
    """The same fields as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return json.dumps(self.fields(record), ensure_ascii=False)


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Sends every record of this package to `stream` (standard error); other libraries' from warning up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LogfmtFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("llm_serving_exporter").setLevel(LEVELS[level])

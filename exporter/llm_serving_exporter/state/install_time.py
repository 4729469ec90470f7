"""When the exporter was installed, kept in the state file where one is configured."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from llm_serving_exporter.files.leftovers import sweep_leftovers
from llm_serving_exporter.files.written import write_atomically

log = logging.getLogger("llm_serving_exporter.state")

_KEY = "installed_unix_seconds"
_READABLE = "give the exporter's user the right to read it, or choose another with --state-file"
_WRITABLE = "give the exporter's user the right to write its folder, or choose another with --state-file"


def read_or_write_install_time(path: str | None, now_unix_seconds: float) -> float | None:
    """The Unix time of the first run, which writes it. None without a state file, and where it cannot be used (logged)."""
    if path is None:
        return None
    file = Path(path)
    sweep_leftovers(file.parent)
    try:
        value = json.loads(file.read_text(encoding="utf-8"))[_KEY]
        return float(value)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("state file %s cannot be read (%s); %s", path, error.strerror, _READABLE)
        return None
    except (ValueError, KeyError, TypeError) as error:
        log.warning("state file %s is none of this exporter's (%s); remove it to start a new one", path, error)
        return None
    try:
        write_atomically(file, (json.dumps({_KEY: now_unix_seconds}) + "\n").encode())
    except OSError as error:
        log.warning("state file %s cannot be written (%s); %s", path, error.strerror, _WRITABLE)
        return None
    return now_unix_seconds

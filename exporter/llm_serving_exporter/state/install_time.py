"""When the exporter was installed, kept in the state file where one is configured."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from llm_serving_exporter.files.written import sweep_leftovers, write_atomically
from llm_serving_exporter.state.json_values import LARGEST_FILE_BYTES, parse_unix_seconds

log = logging.getLogger("llm_serving_exporter.state")

_KEY = "installed_unix_seconds"
# 2020: no exporter is older. A host without a battery for its clock begins in 1970, and has the time once it has a network
_EARLIEST_UNIX_SECONDS = 1_577_836_800.0
_READABLE = "give the exporter's user the right to read it, or choose another with --state-file"
_WRITABLE = "give the exporter's user the right to write its folder, or choose another with --state-file"


def read_or_write_install_time(path: str | None, now_unix_seconds: float) -> float | None:
    """The Unix time of the first run, which writes it. None without a state file, and where it cannot be used (logged).

    With a clock that is not set yet nothing is written: the next start does it.
    """
    if path is None:
        return None
    file = Path(path)
    sweep_leftovers(file.parent)
    try:
        if (installed := _read(file)) >= _EARLIEST_UNIX_SECONDS:
            return installed
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("state file %s cannot be read (%s); %s", path, error.strerror, _READABLE)
        return None
    except (ValueError, RecursionError) as error:
        log.warning("state file %s is none of this exporter's (%s); remove it to start a new one", path, error)
        return None
    if now_unix_seconds < _EARLIEST_UNIX_SECONDS:
        log.warning("the clock is not set: when the exporter was installed is written to %s at a later start", path)
        return None
    try:
        write_atomically(file, (json.dumps({_KEY: now_unix_seconds}) + "\n").encode())
    except OSError as error:
        log.warning("state file %s cannot be written (%s); %s", path, error.strerror, _WRITABLE)
        return None
    return now_unix_seconds


def _read(file: Path) -> float:
    """Raises OSError, or ValueError or RecursionError for what no exporter has written."""
    with file.open("rb") as opened:
        content = opened.read(LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        raise ValueError("it is too large")
    document = json.loads(content.decode("utf-8"))
    installed = parse_unix_seconds(document, _KEY) if isinstance(document, dict) else None
    if installed is None:
        raise ValueError(f"{_KEY} is missing")
    return installed

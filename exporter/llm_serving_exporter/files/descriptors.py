"""How many files and sockets this process may have open at once."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("llm_serving_exporter.files")

# where the system does not say, or says that there is no limit
_USUAL = 1024


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open descriptors to the hard one; the limit then.

    The soft one is 1,024 on most machines for the sake of programs that use select(), which this is not.
    """
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays as it is: %s", error)
    return read_descriptor_limit()


def read_descriptor_limit() -> int:
    """The soft limit of open descriptors."""
    try:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (OSError, ValueError):
        return _USUAL
    return _USUAL if soft == resource.RLIM_INFINITY else soft

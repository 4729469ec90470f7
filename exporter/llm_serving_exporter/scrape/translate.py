"""What sockets, TLS and http.client raise during an exchange -> the named failure."""

from __future__ import annotations

import http.client
import ssl

from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.scrape.connect import explain_tls_failure, explain_tls_server
from llm_serving_exporter.scrape.failure import ScrapeError

_TLS_ALERT = "\x15\x03"  # RFC 8446, 5.1: what a TLS port answers to plain HTTP begins so


def translate_error(
    error: Exception, where: str, server_name: str, timeout_seconds: float, received: int, at_end: bool
) -> ScrapeError:
    """The failure for `error`, raised after `received` bytes of an answer; `at_end`: the server had closed by then.

    Any other exception is a fault of the exporter (INTERNAL). The message names only its type, because its text may hold
    a secret.
    """
    if isinstance(error, TimeoutError):
        limit = f"{timeout_seconds:g} s"
        if received:
            detail = f"{where} did not complete its answer within {limit} ({count_nouns(received, 'byte')} came); is it overloaded?"
        else:
            detail = (
                f"{where} accepted the request but sent no answer within {limit}; is the server stuck or overloaded?"
            )
        return ScrapeError(FailureReason.TIMEOUT, detail)
    if isinstance(error, ssl.SSLError):
        return explain_tls_failure(where, server_name, error)
    came = f"after {count_nouns(received, 'byte')}" if received else "before the first byte"
    if isinstance(error, ConnectionError) or (isinstance(error, http.client.IncompleteRead) and at_end):
        return ScrapeError(
            FailureReason.CLOSED, f"{where} hung up {came} of a complete answer; did it crash or restart?"
        )
    if isinstance(error, OSError):
        cause = error.strerror or type(error).__name__
        return ScrapeError(FailureReason.UNREACHABLE, f"the connection to {where} broke {came} ({cause})")
    if isinstance(error, http.client.BadStatusLine):
        if _TLS_ALERT in str(error):
            return explain_tls_server(where)
        return ScrapeError(FailureReason.PROTOCOL, f"{where} does not answer in HTTP/1; is the port right?")
    if isinstance(error, http.client.HTTPException):
        return ScrapeError(
            FailureReason.PROTOCOL, f"{where} sent an answer that breaks HTTP or its limits ({type(error).__name__})"
        )
    return ScrapeError(
        FailureReason.INTERNAL, f"a fault of the exporter itself ({type(error).__name__}); please report it"
    )

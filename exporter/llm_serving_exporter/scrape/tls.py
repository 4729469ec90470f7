"""Settings -> TLS context, rebuilt when a certificate file changes on disk."""

from __future__ import annotations

import ssl
from functools import lru_cache

from llm_serving_exporter.files.watched import Stamp
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.target import HttpSettings
from llm_serving_exporter.scrape.credentials import stamp_regular_file, unreadable_error
from llm_serving_exporter.scrape.failure import ScrapeError


def make_client_context(settings: HttpSettings) -> ssl.SSLContext:
    """The context for one server: the same object until one of the files changes.

    Without `ca_file` the system's trust store decides. Raises ScrapeError (CREDENTIALS) for a file that cannot be
    read, or that is not a certificate or key in PEM form.
    """
    stamps = tuple(
        None if path is None else stamp_regular_file(path, what)
        for path, what in (
            (settings.ca_file, "ca_file"),
            (settings.cert_file, "cert_file"),
            (settings.key_file, "key_file"),
        )
    )
    return _build_context(
        settings.ca_file, settings.cert_file, settings.key_file, settings.insecure_skip_verify, stamps
    )


# A context holds the whole trust store (about 1 MB with the system's), so targets with equal settings share one. The
# stamps are part of the key: a rotated file makes a new context, and the cache's bound lets the old one go.
@lru_cache(maxsize=32)
def _build_context(
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    insecure_skip_verify: bool,
    stamps: tuple[Stamp | None, ...],
) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise _not_pem_error("ca_file", ca_file, error) from error
    except OSError as error:
        raise unreadable_error(str(ca_file), "ca_file", error) from error
    if insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_file is not None:
        try:
            # Without a password function OpenSSL would ask on the terminal, and wait.
            context.load_cert_chain(cert_file, key_file, password=lambda: "")
        except ssl.SSLError as error:
            raise _not_pem_error("cert_file and key_file", f"{cert_file}, {key_file or cert_file}", error) from error
        except OSError as error:
            raise unreadable_error(f"{cert_file}, {key_file or cert_file}", "cert_file and key_file", error) from error
    return context


def _not_pem_error(what: str, paths: str | None, error: ssl.SSLError) -> ScrapeError:
    return ScrapeError(
        FailureReason.CREDENTIALS,
        f"{what} {paths} cannot be used ({error.reason or 'unknown format'}); "
        "it must be PEM, a key must fit its certificate and have no passphrase",
    )

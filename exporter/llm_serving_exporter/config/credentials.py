"""Whose credentials go where: those of one section of discovery only to targets of that section."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_exporter.config.target_keys import TargetSettings
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import HttpSettings, Secret
from llm_serving_exporter.schema.problems import Place


def has_credentials(http: HttpSettings) -> bool:
    """Whether a request would carry a token, a password, a header out of a secret, or a client certificate."""
    return drop_credentials(http) != http


def sends_secret(http: HttpSettings) -> bool:
    """Whether a request would carry a secret that whoever is on the way can read where there is no TLS."""
    return has_credentials(replace(http, cert_file=None, key_file=None))


def drop_credentials(http: HttpSettings) -> HttpSettings:
    """The same way to ask a server, as nobody in particular."""
    return replace(
        http,
        bearer_token=None,
        basic_username=None,
        basic_password=None,
        headers=_plain_headers(http.headers),
        cert_file=None,
        key_file=None,
    )


def drop_inherited(settings: TargetSettings) -> TargetSettings:
    """What `target_defaults` set for targets that somebody else names (http_sd, Kubernetes): everything but credentials.

    Those a section has to give in `defaults` of its own.
    """
    tls = settings.tls
    return replace(
        settings,
        auth=None,
        headers=None if settings.headers is None else _plain_headers(settings.headers),
        tls=None if tls is None else replace(tls, cert_file=None, key_file=None),
    )


def warn_of_dropped(under: TargetSettings, own: TargetSettings, place: Place) -> Iterator[str]:
    """A sentence for each kind of credentials of `target_defaults` that do not go to the targets of a section. `own`: its defaults."""
    inherited = drop_inherited(under)
    for name in ("auth", "headers", "tls"):
        if getattr(under, name) != getattr(inherited, name) and getattr(own, name) is None:
            yield (
                f"{place}: credentials in target_defaults.{name} do not go to the targets of this section; write them in its own defaults"
            )


def _plain_headers(headers: tuple[tuple[str, str | Secret], ...]) -> tuple[tuple[str, str | Secret], ...]:
    return tuple((name, content) for name, content in headers if isinstance(content, str))

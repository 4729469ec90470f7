"""report.yml -> Settings, or every reason why not."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.http import AUTH_KEYS, NO_SECRETS, read_auth, read_secret
from llm_serving_exporter.settings.keys import is_empty, keys_of, mapping, names_of, read_keys, refuse_missing
from llm_serving_exporter.settings.options import Context
from llm_serving_exporter.settings.problems import Node, Place, shown
from llm_serving_review.settings.settings import Server, Settings, Smtp

# read by hand, because they hold a secret or belong together
_BESIDE = ("prometheus", "smtp", "webhook_url_file", "webhook_url_env")
_PASSWORD_KEYS = ("password_file", "password_env")
_HINTS = {
    "currency": "Remove it: every amount is in USD.",
    "webhook_url": f"{NO_SECRETS} webhook_url_file or webhook_url_env.",
    "week": "It is a flag: --week 2026-W46.",
}
_SMTP_HINTS = {"password": f"{NO_SECRETS} password_file or password_env."}
_PROMETHEUS_HINTS = {
    "bearer_token": f"{NO_SECRETS} bearer_token_file or bearer_token_env.",
    "password": f"{NO_SECRETS} basic: {{username: …, password_file: …}}.",
}
_NUMBERED_DAY = re.compile(r"(^|[,-])[0-9]")


def read_settings(node: Node | None, place: Place, context: Context) -> Settings:
    """Settings from a file's tree. Faults are reported at their places; a key with a fault counts as not given."""
    keys = keys_of(Settings)
    section = mapping(node, place, (*names_of(keys), *_BESIDE), _HINTS)
    server = _read_server(*section.find_key("prometheus"), context)
    settings = Settings(
        **read_keys(keys, section, place, context),
        server=server,
        webhook_url=read_secret(section, place, "webhook_url_file", "webhook_url_env", context),
        smtp=_read_smtp(*section.find_key("smtp"), context),
    )
    if settings.purchase_usd is not None and "api_price" not in section:
        place.key("purchase").refuse("there is no API price to compare the purchase with", "Add api_price.")
    if settings.schedule is not None and not _is_schedule(settings.schedule, place.key("schedule"), settings.timezone):
        return replace(settings, schedule=None)
    return settings


def _read_server(node: Node | None, place: Place, context: Context) -> Server:
    keys = keys_of(Server)
    section = mapping(node, place, (*names_of(keys), *AUTH_KEYS), _PROMETHEUS_HINTS)
    auth = read_auth({name: section[name] for name in AUTH_KEYS if name in section}, place, context)
    server = Server(**read_keys(keys, section, place, context))
    if auth is None:
        return server
    token, username, password = auth.bearer_token, auth.basic_username, auth.basic_password
    return replace(server, bearer_token=token, basic_username=username, basic_password=password)


def _is_schedule(text: str, place: Place, timezone: str) -> bool:
    fields = text.split()
    if len(fields) == 5 and _NUMBERED_DAY.search(fields[4]):
        what = "the day of the week is a number: cron counts from Sunday, other schedulers from Monday"
        place.refuse(what, "Write its name, as in mon.")
        return False
    try:
        CronTrigger.from_crontab(text, timezone=ZoneInfo(timezone))
    except (ValueError, TypeError, KeyError) as error:
        fix = 'Write five fields, as in "0 7 * * mon" for Mondays at 7.'
        place.refuse(f"{shown(text)} is not a crontab line: {error}", fix)
        return False
    return True


def _read_smtp(node: Node | None, place: Place, context: Context) -> Smtp | None:
    if is_empty(node):
        return None
    keys = keys_of(Smtp)
    section = mapping(node, place, (*names_of(keys), *_PASSWORD_KEYS), _SMTP_HINTS)
    is_sound = place.watch()
    given = read_keys(keys, section, place, context)
    password = read_secret(section, place, *_PASSWORD_KEYS, context)
    example = "Write {host: mail.example.com, from: …, to: [finance@example.com]}."
    if not refuse_missing(keys, section, place, example) and is_sound():
        if not given["to"]:
            place.key("to").refuse("the list is empty", "Write to: [finance@example.com].")
        elif ("username" in given) != (password is not None):
            fix = "Give username with password_file or password_env, or neither."
            place.refuse("a user name and a password belong together", fix)
    if given.get("starttls") is False and "username" in given:
        place.key("starttls").refuse("the password would be sent in the clear", "Remove it; the default is true.")
    return Smtp(**given, password=password) if is_sound() else None

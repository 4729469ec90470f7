"""report.yml -> Settings, or every reason why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from llm_serving_exporter.config.http import check_file, read_auth, read_secret
from llm_serving_exporter.report.settings.kinds import HOST, KEEP, LABEL, MAIL, PORT, SHARE, TEXT, URL, USD, ZONE
from llm_serving_exporter.report.settings.settings import ApiPrice, MonthlyCosts, Server, Settings, Smtp
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import Place, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, value
from llm_serving_exporter.schema.tree import Node

KEYS = (
    "prometheus", "timezone", "identity_labels", "by_labels", "title", "out", "keep", "api_price", "purchase", "monthly_costs",
    "objectives", "schedule", "webhook_url_file", "webhook_url_env", "smtp",
)  # fmt: skip
_HINTS = {
    "currency": "Leave it away: every amount is in USD.",
    "webhook_url": "A secret never stands in the file: write webhook_url_file or webhook_url_env.",
    "week": "It is a flag: --week 2026-W46.",
}
_SMTP_HINTS = {"password": "A secret never stands in the file: write password_file or password_env."}
_PROMETHEUS_HINTS = {
    "bearer_token": "A secret never stands in the file: write bearer_token_file or bearer_token_env.",
    "password": "A secret never stands in the file: write basic: {username: …, password_file: …}.",
}
_AUTH_KEYS = ("bearer_token_file", "bearer_token_env", "basic")
_SLOS = ("ttft", "itl", "e2e", "errors")
_NUMBERED_DAY = re.compile(r"(^|[,-])[0-9]")


def read_settings(node: Node | None, place: Place, context: Context) -> Settings:
    """Settings from a file's tree; faults are reported at their places, and what they are about is as if it were not set."""
    keys = mapping(node, place, KEYS, _HINTS)
    defaults = Settings()

    def one(key: str, kind: Kind[str]) -> str | None:
        return value(keys.get(key), place.key(key), kind)

    out = one("out", kinds.PATH)
    timezone = one("timezone", ZONE) or defaults.timezone
    purchase = mapping(keys.get("purchase"), place.key("purchase"), ("usd",))
    found = Settings(
        server=_server(keys.get("prometheus"), place.key("prometheus"), context),
        timezone=timezone,
        identity_labels=_labels(keys, place, "identity_labels"),
        by_labels=_labels(keys, place, "by_labels"),
        title=one("title", TEXT) or defaults.title,
        out=context.resolve(out) if out is not None else defaults.out,
        keep=value(keys.get("keep"), place.key("keep"), KEEP),
        api_price=_api_price(keys.get("api_price"), place.key("api_price")),
        purchase_usd=value(purchase.get("usd"), place.key("purchase").key("usd"), USD),
        monthly_costs=_monthly(keys.get("monthly_costs"), place.key("monthly_costs")),
        objectives=_objectives(keys.get("objectives"), place.key("objectives")),
        webhook_url=read_secret(keys, place, "webhook_url_file", "webhook_url_env", context),
        smtp=_smtp(keys.get("smtp"), place.key("smtp"), context),
    )
    if "purchase" in keys and not purchase:
        place.key("purchase").refuse("usd is missing", "Write purchase: {usd: 250000}.")
    if found.purchase_usd is not None and "api_price" not in keys:
        place.key("purchase").refuse("there is nothing to pay it back against", "Add api_price.")
    return replace(found, schedule=_schedule(keys.get("schedule"), place.key("schedule"), timezone))


def _labels(keys: Mapping[str, Node], place: Place, key: str) -> tuple[str, ...]:
    found = [value(node, at, LABEL) for node, at in elements(keys.get(key), place.key(key), "names of labels")]
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _server(node: Node | None, place: Place, context: Context) -> Server:
    keys = mapping(node, place, ("url", *_AUTH_KEYS, "ca_file"), _PROMETHEUS_HINTS)
    auth = read_auth({key: keys[key] for key in _AUTH_KEYS if key in keys}, place, context)
    ca_file = value(keys.get("ca_file"), place.key("ca_file"), kinds.PATH)
    if ca_file is not None:
        check_file(context.resolve(ca_file), place.key("ca_file"))
    return Server(
        value(keys.get("url"), place.key("url"), URL) or "",
        auth.bearer_token if auth else None,
        auth.basic_username if auth else None,
        auth.basic_password if auth else None,
        context.resolve(ca_file) if ca_file is not None else None,
    )


def _api_price(node: Node | None, place: Place) -> ApiPrice | None:
    if is_empty(node):
        return None
    amounts = ("input_usd_per_million", "cached_input_usd_per_million", "output_usd_per_million")
    keys = mapping(node, place, ("name", *amounts))
    name = value(keys.get("name"), place.key("name"), TEXT)
    prices = [value(keys.get(key), place.key(key), USD) for key in amounts]
    if missing := [key for key in ("name", *amounts) if key not in keys]:
        place.refuse(
            f"{', '.join(missing)} missing",
            "State the name and all three prices; a cache without a discount has the input's.",
        )
    if name is None or None in prices:
        return None
    return ApiPrice(name, *(price for price in prices if price is not None))


def _monthly(node: Node | None, place: Place) -> MonthlyCosts:
    names = ("storage", "network", "monitoring", "engineering")
    keys = mapping(node, place, names)
    return MonthlyCosts(*(value(keys.get(name), place.key(name), USD) or 0.0 for name in names))


def _objectives(node: Node | None, place: Place) -> dict[str, float]:
    keys = mapping(node, place, _SLOS)
    found = {name: value(keys.get(name), place.key(name), SHARE) for name in _SLOS}
    return {name: share for name, share in found.items() if share is not None}


def _schedule(node: Node | None, place: Place, timezone: str) -> str | None:
    text = value(node, place, TEXT)
    if text is None:
        return None
    fields = text.split()
    if len(fields) == 5 and _NUMBERED_DAY.search(fields[4]):
        # cron counts from Sunday, APScheduler from Monday
        place.refuse(
            "the day of the week is a number, which not everybody counts from the same day",
            "Write its name, as in mon.",
        )
        return None
    try:
        CronTrigger.from_crontab(text, timezone=ZoneInfo(timezone))
    except (ValueError, TypeError, KeyError) as error:
        place.refuse(
            f"{shown(text)} is not a crontab line: {error}", 'Write five fields, as in "0 7 * * mon" for Mondays at 7.'
        )
        return None
    return text


def _smtp(node: Node | None, place: Place, context: Context) -> Smtp | None:
    if is_empty(node):
        return None
    required = ("host", "from", "to")
    keys = mapping(
        node, place, (*required, "port", "starttls", "username", "password_file", "password_env"), _SMTP_HINTS
    )
    before = len(place.problems)
    host = value(keys.get("host"), place.key("host"), HOST)
    port = value(keys.get("port"), place.key("port"), PORT)
    starttls = value(keys.get("starttls"), place.key("starttls"), kinds.BOOLEAN)
    sender = value(keys.get("from"), place.key("from"), MAIL)
    to = tuple(
        address
        for one, at in elements(keys.get("to"), place.key("to"), "mail addresses")
        if (address := value(one, at, MAIL)) is not None
    )
    username = value(keys.get("username"), place.key("username"), TEXT)
    password = read_secret(keys, place, "password_file", "password_env", context)
    if missing := [key for key in required if key not in keys]:
        place.refuse(
            f"{', '.join(missing)} missing", "Write {host: mail.example.com, from: …, to: [finance@example.com]}."
        )
    elif not to and len(place.problems) == before:
        place.key("to").refuse("there is nobody in it", "Write to: [finance@example.com].")
    if len(place.problems) == before and (username is None) != (password is None):
        place.refuse(
            "a user name and a password belong together",
            "Give username with password_file or password_env, or neither.",
        )
    if starttls is False and username is not None:
        place.key("starttls").refuse("the password would be sent in the clear", "Remove it; the default is true.")
    if host is None or sender is None or not to:
        return None
    return Smtp(host, port or 587, True if starttls is None else starttls, sender, to, username, password)

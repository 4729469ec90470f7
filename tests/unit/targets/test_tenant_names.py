"""Names of tenants, one by one: what is published of them, what is withheld, and how long that takes."""

import time
from pathlib import Path

from llm_serving_exporter.model.tenants import UNLABELLED, WITHHELD, TenantKind, TenantSettings
from llm_serving_exporter.targets.tenants import TenantNames
from tests.support.rows import check_rows


def test_without_its_key_nobody_is_named(tmp_path: Path) -> None:
    names = TenantNames(TenantSettings(TenantKind.TEAM, key_file=str(tmp_path / "gone")))
    assert names.publish("ads") == WITHHELD
    assert names.publish("") == UNLABELLED


def test_names_are_bounded_and_printable() -> None:
    names = TenantNames(TenantSettings(TenantKind.TEAM))
    assert len(names.publish("x" * 5000)) == 80
    assert "\n" not in names.publish("a\nb")
    assert names.publish(" \t") == UNLABELLED


@check_rows(
    "name", ["U024BE7LH", "@search", "9f1c2a34-6bb1-4c1e-9d11-00805f9b34fb", "desk-team-1-of-the-eastern-floor"]
)
def test_what_is_no_address_and_no_key_keeps_its_name(name: str) -> None:
    assert TenantNames(TenantSettings(TenantKind.USER)).publish(name) == name


def test_a_key_in_the_place_of_a_name_is_withheld() -> None:
    assert TenantNames(TenantSettings(TenantKind.KEY)).publish("ci sk-Zs9fQ2k3Lw8pXy7v0aBcDe") == WITHHELD


def test_a_name_takes_no_longer_than_it_is() -> None:
    """Whoever sends requests chooses names of users, and each page asks for each of them: a search that begins anew at each character took
    14 s for this one."""
    began = time.process_time()
    TenantNames(TenantSettings(TenantKind.USER)).publish(
        "x" * 20_000 + "&amp;" * 1000 + "%25" * 1000 + "[ " * 1000 + "\\" * 20_000
    )
    assert time.process_time() - began < 1.0


def test_words_of_ours_take_no_row_of_a_tenant() -> None:
    names = TenantNames(TenantSettings(TenantKind.TEAM, limit=1))
    assert [names.publish(raw) for raw in ("other", "unlabelled", "withheld", "ads")] == [
        "other",
        "unlabelled",
        "withheld",
        "ads",
    ]

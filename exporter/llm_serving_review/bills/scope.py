"""Which lines of a bill are compared: GPUs of the fleet's accounts. All others are one sum."""

from __future__ import annotations

from collections.abc import Collection

from llm_serving_review.bills.charge import Charge
from llm_serving_review.bills.instances import InstanceTypes
from llm_serving_review.bills.resources import normalise_resource


class Scope:
    """Decides line by line.

    A line about an instance goes by the instance's type; one that says no type, as on bills that list cores, memory and GPUs of a machine
    each by itself, by whether its machine is known.
    """

    def __init__(self, types: InstanceTypes, accounts: Collection[str], known: Collection[str]) -> None:
        """`accounts`: () for all. `known`: machines that were metered or are mapped, by `normalise_resource`."""
        self._types = types
        self._accounts = frozenset(account.lower() for account in accounts)
        self._known = frozenset(known)

    @property
    def has_accounts(self) -> bool:
        """Whether the settings list accounts."""
        return bool(self._accounts)

    def cover_account(self, charge: Charge) -> bool:
        """Whether the line is of an account whose bill is compared."""
        if not self._accounts:
            return True
        # Azure's are paths, such as /subscriptions/…, of which the last part is enough
        account = charge.account.lower()
        return account in self._accounts or account.rsplit("/", 1)[-1] in self._accounts

    def cover_usage(self, charge: Charge) -> bool:
        """Whether a line of usage is compared."""
        if charge.instance_type and self._types.cover(charge.instance_type):
            return True
        if not charge.instance_type and not charge.is_compute:
            return False
        return self.name_machine(charge)

    def name_machine(self, charge: Charge) -> bool:
        """Whether a line names a machine that was metered or is mapped, whatever it is about."""
        return bool(charge.resource) and normalise_resource(charge.resource) in self._known

    def cover_type(self, instance_type: str) -> bool:
        """Whether a type of instances, or a family of them, is compared."""
        return self._types.cover_family(instance_type)

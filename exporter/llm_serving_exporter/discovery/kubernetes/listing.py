"""What is copied of an API server, and what is said of it where that does not go well."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.discovery.kubernetes.api import ApiError, describe_error
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.record import Struct, field


class Listing(Struct, frozen=True):
    """What is copied."""

    name: str  # by which users know it; its problems begin with it
    what: str  # plural of the resource: "pods"
    path: str  # at the API server
    where: str  # for a sentence: "in the namespace a", "of all namespaces"
    remedy: str  # which rights are needed, a sentence
    parameters: Mapping[str, str] = field(default_factory=dict)  # selectors
    absent: str = ""  # what to do where the server knows no such resource, a sentence; "": every server knows it

    def explain_failure(self, error: ApiError, *, is_known: bool) -> Problem:
        """Why the list cannot be followed, with the remedy. `is_known`: whether it has been read once."""
        kept = " What is known of them stays." if is_known else ""
        if error.code == 403:
            what = f"it may not list and watch {self.what} {self.where}: {error}"
            return Problem(self.name, "", what.rstrip("."), f"{self.remedy}{kept}")
        if error.code == 401:
            fix = f"Check its service account, or the user of the kubeconfig.{kept}"
            return Problem(self.name, "", "the API server does not accept the exporter's credentials", fix)
        if error.code == 404 and self.absent:
            return Problem(self.name, "", f"the API server knows no {self.what}", f"{self.absent}{kept}")
        fix = f"It is asked again and again.{kept}"
        return Problem(self.name, "", f"{self.what} {self.where} cannot be followed: {error}".rstrip("."), fix)

    def explain_oddity(self, error: Exception) -> Problem:
        """That an object of the list is not what it should be."""
        what = f"one of the {self.what} {self.where} cannot be made out: {describe_error(error)}"
        return Problem(self.name, "", what, "It is left out; please report it.")

    def explain_excess(self, number: int, most: int) -> Problem:
        """That so many objects are beyond the bound `most`."""
        what = f"{number} of the {self.what} {self.where} beyond {most} are left out"
        return Problem(self.name, "", what, "Narrow the section by namespaces or a selector.")

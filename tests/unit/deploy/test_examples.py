"""The examples of deploy/ say what the program takes."""

from __future__ import annotations

from llm_serving_exporter.cli import _OWN_ARGUMENTS
from llm_serving_review.settings.arguments import parser
from tests.support.paths import ROOT
from tests.support.yaml_text import load_yaml

DEPLOY = ROOT / "deploy"


def test_the_cronjob_calls_the_review_as_it_wants_to_be_called() -> None:
    job = load_yaml((DEPLOY / "report-cronjob.example.yml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, *words = container["args"]
    assert command in _OWN_ARGUMENTS
    found = parser().parse_args(words)
    assert (found.config_file, found.deliver) == ("/etc/llm-serving/report.yml", True)
    # every folder that it names is mounted, and nothing else is writable
    mounted = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounted["/etc/llm-serving"] is True
    assert {path for path, read_only in mounted.items() if not read_only} == {
        "/tmp",
        "/var/lib/llm-serving-exporter/reviews",
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True

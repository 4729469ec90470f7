"""Values of the Helm chart that are refused: each by its name, and with what to do where two do not go together."""

from __future__ import annotations

import pytest

from tests.support.helm import template

pytestmark = pytest.mark.packages


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("replicas=2", "additional properties 'replicas' not allowed"),
        ("image.tga=1", "at '/image': additional properties 'tga' not allowed"),
        ("networkPolicy.apiServer.cidr=10.0.0.1/32", "additional properties 'cidr' not allowed"),
        ("mode=deployment", "value must be one of 'daemonset', 'statefulset', 'sidecar'"),
        ("scrape.kind=PodMonitor", "value must be one of 'none', 'podmonitor', 'scrapeconfig', 'annotations'"),
        ("statefulset.shards=0", "minimum: got 0, want 1"),
        ("port=80", "minimum: got 80, want 1,024"),
        ("discovery.namespaces={Chat}", "does not match pattern"),
        ("image.digest=sha256:1", "does not match pattern"),
        ("sidecar.target.url=null", "missing property 'url'"),
        ("image=null", "at '': missing property 'image'"),
        ("networkPolicy.enginePorts=null", "at '/networkPolicy': missing property 'enginePorts'"),
        ("resources.limit.memory=1Gi", "at '/resources': additional properties 'limit' not allowed"),
        ("report.resources.limit.memory=1Gi", "at '/report/resources': additional properties 'limit' not allowed"),
        ("tolerations[0].ky=a", "at '/tolerations/0': additional properties 'ky' not allowed"),
        ("affinity.podAntiafinity.x=1", "at '/affinity': additional properties 'podAntiafinity' not allowed"),
        ("seLinuxOptions.typ=spc_t", "at '/seLinuxOptions': additional properties 'typ' not allowed"),
        ("extraEnv[0].nam=A", "at '/extraEnv/0': missing property 'name'"),
        ("extraVolumeMounts[0].path=/a", "additional properties 'path' not allowed"),
        ("nameOverride=My_Name", "does not match pattern"),
        ("daemonset.maxUnavailable=0%", "does not match pattern"),
    ],
)
def test_a_wrong_value_is_refused_by_name(wrong: str, said: str) -> None:
    done = template("--set", wrong)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize(
    ("together", "said"),
    [
        ("networkPolicy.enabled=true", "networkPolicy.apiServer.cidrs is empty"),
        ("mode=sidecar,networkPolicy.enabled=true", "would bind the engines"),
        (
            "networkPolicy.enabled=true,networkPolicy.apiServer.cidrs={10.0.0.1/32},daemonset.hostNetwork=true",
            "does not bind pods in the node's network",
        ),
        ("mode=sidecar,report.enabled=true", "report-cronjob.example.yml"),
        ("report.enabled=true", "report.settings is empty"),
        ("mode=statefulset,daemonset.hostPID=true", "is of mode daemonset"),
        ("mode=statefulset,gpu.dra=true", "gpu.dra is of mode daemonset"),
        ("gpu.dra=true,discovery.enabled=false", "gpu.dra wants discovery.enabled"),
        ("scheme=https", "set config.web.config.file"),
        ("config.web.listen_address=:9090", "set port"),
        ("commonLabels.app\\.kubernetes\\.io/component=x", "by which the chart selects its own pods"),
        ("mode=sidecar,podLabels.llm-serving-exporter/sidecar=x", "by which the chart selects its own pods"),
        ("mode=statefulset,fullnameOverride=2nd", "the name of a Service begins with a letter"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_what_to_do(together: str, said: str) -> None:
    done = template("--set", together)
    assert done.returncode != 0
    assert said in done.stderr

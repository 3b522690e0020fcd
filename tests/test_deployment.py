"""The chart and the compose file: Helm's own library renders the chart, Kubernetes' own schemas check what comes out,
and rules of ours hold what a schema cannot know."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from foretool.server.config import loader
from foretool.server.config.addresses import parse_address
from foretool.server.transports.client.http_rules import list_problems

ROOT = Path(__file__).resolve().parents[1]
PACKAGING = ROOT / "packaging"
CHART = PACKAGING / "helm"
KUBERNETES = ("1.29", "1.37")
"""The oldest and the newest version whose schemas the manifests are checked against."""
Json = dict[str, Any]

GRANTS = [{"claim": "groups", "values": ["developers"], "profiles": ["default"]}]
ACCESS = {"issuer": "https://login.example.com", "resource": "https://tools.example.com/mcp", "grants": GRANTS}
SMALL: Json = {"foretool": {"access": ACCESS}, "host": "tools.example.com"}
TEAM: Json = {
    **SMALL,
    "mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"KEY": "${KEY}"}}},
    "existingSecret": "secrets",
    "database": {"existingSecret": "postgres"},
    "autoscaling": {"enabled": True},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls"},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
    "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "persistence": {"storageClass": "fast"},
}
CASES = {"small": SMALL, "team": TEAM, "bare": {**SMALL, "networkPolicy": {"enabled": False},
         "podDisruptionBudget": {"enabled": False}, "persistence": {"storageClass": "fast"}}}  # fmt: skip


def render(values: Json) -> list[Json]:
    helm = pytest.importorskip("helm_python")
    with helm.Chart.load(CHART) as chart:
        manifests: dict[str, str] = chart.render(values, name="tools", namespace="team")
    yaml = YAML(typ="safe")
    found = []
    for path, text in manifests.items():
        if path.endswith(".yaml"):
            found += [each for each in yaml.load_all(text) if each]
    return found


def of_kind(manifests: list[Json], kind: str) -> Json:
    (found,) = [each for each in manifests if each["kind"] == kind]
    return found


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield str(key)
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("case", CASES)
def test_helm_finds_nothing_wrong(case: str) -> None:
    helm = pytest.importorskip("helm_python")
    found = helm.lint(str(CHART), CASES[case], strict=True)
    assert found["errors"] == []
    assert [each for each in found["messages"] if each["severity"] > 1] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("case", CASES)
def test_each_manifest_fits_the_schemas_of_kubernetes(case: str, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    manifests = render(CASES[case])
    kinds = [each["kind"] for each in manifests]
    for manifest in manifests:
        validate.validate(manifest, version, strict=True)
        assert manifest["metadata"]["name"] == "tools"
    expected = {
        "small": {"ConfigMap", "ServiceAccount", "PersistentVolumeClaim", "Deployment", "Service", "NetworkPolicy",
                  "PodDisruptionBudget"},
        "team": {"ConfigMap", "ServiceAccount", "Deployment", "Service", "NetworkPolicy", "Ingress",
                 "HorizontalPodAutoscaler", "PodDisruptionBudget"},
        "bare": {"ConfigMap", "ServiceAccount", "PersistentVolumeClaim", "Deployment", "Service"},
    }  # fmt: skip
    assert sorted(kinds) == sorted(expected[case])


def test_a_schema_that_does_not_fit_is_noticed() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    deployment = of_kind(render(TEAM), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["securityContxt"] = {}
    with pytest.raises(validate.ValidationError):
        validate.validate(deployment, KUBERNETES[-1], strict=True)


@pytest.mark.parametrize("case", CASES)
def test_a_pod_has_no_more_rights_than_it_needs(case: str) -> None:
    pod = of_kind(render(CASES[case]), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"/data", "/tmp"}
    assert not any("hostPath" in volume for volume in pod["volumes"])


@pytest.mark.parametrize("case", CASES)
def test_probes_ask_under_a_name_that_is_served(case: str) -> None:
    (container,) = of_kind(render(CASES[case]), "Deployment")["spec"]["template"]["spec"]["containers"]
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz",
    }  # fmt: skip
    assert all(probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}] for probe in probes.values())


@pytest.mark.parametrize("case", CASES)
def test_the_config_in_the_chart_is_one_that_serves(case: str) -> None:
    text = of_kind(render(CASES[case]), "ConfigMap")["data"]["mcp.json"]
    config = loader.parse(text.encode(), Path("/config/mcp.json"), {"KEY": "x", "HOME": "/data"})
    assert list_problems(config.settings, parse_address("0.0.0.0:8399")) == []
    assert config.settings.allowed_hosts == ("tools.example.com",)
    assert list(config.servers) == list(CASES[case].get("mcpServers", {}))


def test_secrets_come_from_secrets() -> None:
    manifests = render(TEAM)
    assert not any(each["kind"] == "Secret" for each in manifests)
    (container,) = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "secrets"}}]
    (storage,) = [each for each in container["env"] if each["name"] == "FORETOOL_STORAGE"]
    assert storage["valueFrom"] == {"secretKeyRef": {"name": "postgres", "key": "url"}}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({**SMALL, "replicas": 3}, "more than one replica needs PostgreSQL"),
        ({**SMALL, "autoscaling": {"enabled": True}}, "more than one replica needs PostgreSQL"),
        ({"host": "tools.example.com"}, "nobody could come in"),
        ({"foretool": {"access": ACCESS}, "ingress": {"enabled": True}}, "an ingress needs a name"),
    ],
)
def test_what_cannot_work_is_refused_before_it_is_installed(values: Json, said: str) -> None:
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=said):
        render(values)


def test_scaling_changes_the_number_of_replicas_and_a_file_has_one_writer() -> None:
    team, small = (of_kind(render(each), "Deployment")["spec"] for each in (TEAM, SMALL))
    assert "replicas" not in team and team["strategy"]["type"] == "RollingUpdate"
    assert small["replicas"] == 1 and small["strategy"]["type"] == "Recreate"
    scaler = of_kind(render(TEAM), "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "tools" and (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 10)


def test_the_policy_of_the_network_lets_in_one_port_and_out_what_is_named() -> None:
    policy = of_kind(render(TEAM), "NetworkPolicy")["spec"]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": "http"}],
                                  "from": TEAM["networkPolicy"]["from"]}]  # fmt: skip
    ports = [port["port"] for rule in policy["egress"] for port in rule["ports"]]
    assert ports == [53, 53, 443, 5432] and policy["policyTypes"] == ["Ingress", "Egress"]
    assert of_kind(render(SMALL), "NetworkPolicy")["spec"]["ingress"][0]["from"] == [{"podSelector": {}}]


def test_every_selector_finds_the_pods() -> None:
    manifests = render(TEAM)
    labels = of_kind(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        of_kind(manifests, "Deployment")["spec"]["selector"]["matchLabels"],
        of_kind(manifests, "Service")["spec"]["selector"],
        of_kind(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        of_kind(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    backends = [
        path["backend"]["service"]["name"]
        for path in of_kind(manifests, "Ingress")["spec"]["rules"][0]["http"]["paths"]
    ]
    assert backends == ["tools"] * 3


# Compose


def compose() -> Json:
    found: Json = YAML(typ="safe").load((PACKAGING / "compose.yaml").read_text("utf-8"))
    return found


def test_the_compose_file_has_replicas_without_rights_behind_a_balancer() -> None:
    services = compose()["services"]
    assert set(services) == {"postgres", "foretool", "caddy"}
    foretool = services["foretool"]
    assert foretool["deploy"]["replicas"] == 3 and foretool["read_only"] is True
    assert foretool["cap_drop"] == ["ALL"] and foretool["security_opt"] == ["no-new-privileges:true"]
    assert "ports" not in foretool and "ports" not in services["postgres"], "only the balancer is reached from outside"
    assert services["postgres"]["networks"] == ["inner"] and compose()["networks"]["inner"] == {"internal": True}
    assert set(foretool["networks"]) & set(services["caddy"]["networks"]) == {"outer"}
    assert (PACKAGING / foretool["build"]["dockerfile"].partition("/")[2]).exists()
    assert not re.search(r"(?i)password: *[a-z0-9]", (PACKAGING / "compose.yaml").read_text("utf-8"))
    for name, service in services.items():
        declared = {*compose()["volumes"], "."}
        sources = {volume.partition(":")[0].partition("/")[0] for volume in service.get("volumes", ())}
        assert sources <= declared, name


def test_the_balancer_keeps_a_credential_on_one_replica_and_buffers_no_stream() -> None:
    text = (PACKAGING / "Caddyfile").read_text("utf-8")
    assert "lb_policy header Authorization" in text and "flush_interval -1" in text and "foretool 8399" in text
    assert text.count("{") == text.count("}")


def test_the_image_runs_without_root_and_writes_into_its_volume_alone() -> None:
    text = (PACKAGING / "Dockerfile").read_text("utf-8")
    assert re.search(r"^USER 10001$", text, re.MULTILINE) and "FORETOOL_STORAGE=/data/" in text
    assert "[postgres]" in text, "the image has what a database needs"
    assert not re.search(r"(?i)(secret|token|password)\s*=", text)
    assert json.dumps("0.0.0.0:8399") in text


def test_every_value_of_the_chart_is_used() -> None:
    values: Json = YAML(typ="safe").load((CHART / "values.yaml").read_text("utf-8"))
    templates = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    unused = [name for name in values if not re.search(rf"\.Values\.{name}\b", templates)]
    assert unused == []

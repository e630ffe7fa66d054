"""The chart ``netplug-operator``: the objects of the published manifest, with values in them, and the four resources.

The defaults of the values are those of the manifest, so that without values the chart installs what the manifest does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from attrs import frozen

from netplug_backends.kubernetes.installing.manifests import shipped_objects
from netplug_core.decoding.tables import Schema
from netplug_core.installation.components import ComponentKind, component_spec_schema, spec_schema
from netplug_core.installation.daemonset import ENDPOINT_CONFIG_MAP, endpoint_override
from netplug_core.operator.deployment import OPERATOR_NAMESPACE, default_image, render_operator
from netplug_core.resources.installation import (
    INSTALLATION_API_VERSION,
    INSTALLATION_NAME,
    OPERATOR_GROUP,
    OVERLAY_NAME,
)
from tools.charts.templates import Template

__all__ = ["operator_templates", "operator_values", "values_schema"]

_COMPONENTS: Final = {
    "apiServer": ComponentKind.API_SERVER,
    "flowLogAPI": ComponentKind.FLOW_LOG_API,
    "flowLogViewer": ComponentKind.FLOW_LOG_VIEWER,
}
_UNINSTALL: Final = "netplug-uninstall"
_NAMESPACE: Final = ".Release.Namespace"
_IMAGE: Final = 'printf "%s%s:%s" .registry .image .version'
_CERTIFICATES: Final = {"caBundle": "ca.crt", "cert": "tls.crt", "key": "tls.key"}

Json = dict[str, Any]


@frozen
class _Value:
    """A value: its default, its schema, and what it is for."""

    default: object
    schema: Schema
    text: str


def operator_templates(version: str) -> Iterator[tuple[str, str]]:
    """The templates, by their names."""
    account, role, reduced, lease_role, *bindings, deployment = _objects(version)
    yield "serviceaccount.yaml", _rendered(account) + _PULL_SECRETS
    yield "rbac.yaml", _rbac(role, reduced, [lease_role, *bindings])
    yield "deployment.yaml", _deployment(deployment)
    yield "uninstall.yaml", _uninstall()
    yield "imagepullsecrets.yaml", _SECRETS
    yield "certs.yaml", _certificates()
    yield "endpoint.yaml", _ENDPOINT
    yield "monitoring.yaml", _MONITORING
    yield "installation.yaml", _INSTALLATION
    for name, kind in _COMPONENTS.items():
        yield f"{kind.value.lower()}.yaml", _component(name, kind)


def operator_values(version: str) -> dict[str, object]:
    """The values without any of a user's."""
    return {name: value.default for name, value in _values(version).items()}


def values_schema(version: str) -> Schema:
    """What values are accepted, in JSON Schema."""
    members = {name: {**value.schema, "description": value.text} for name, value in _values(version).items()}
    return _closed({"type": "object", "properties": {**members, "global": {"type": "object"}}})


# --- values ----------------------------------------------------------------------------------------------------------


def _values(version: str) -> dict[str, _Value]:
    *_, deployment = _objects(version)
    pod, container = _pod_of(deployment)
    return {
        "installation": _resource(spec_schema(), "the Installation: its fields, beside `enabled`"),
        **{
            name: _resource(component_spec_schema(kind), f"the {kind.value}: its fields, beside `enabled`")
            for name, kind in _COMPONENTS.items()
        },
        "imagePullSecrets": _Value(
            {},
            _map_of({"type": "string"}),
            "Secrets for registries: each name with the content of a docker config.json",
        ),
        "manageCRDs": _Value(default=True, schema={"type": "boolean"}, text="the operator applies the definitions"),
        "certs": _certificate_values(),
        "kubernetesServiceEndpoint": _Value(
            {"host": "", "port": "6443"},
            _object_of(host={"type": "string"}, port={"type": ["string", "integer"]}),
            "where the API server is, if its Service cannot be reached",
        ),
        "monitoring": _monitoring_values(),
        "operator": _image_value(version, "the image of the operator"),
        "netplugctl": _image_value(version, "the image of the Job that deletes the Installation before the chart goes"),
        **_pod_values(pod, container),
    }


def _pod_values(pod: Json, container: Json) -> dict[str, _Value]:
    anything: Schema = {"type": "object"}
    texts = _map_of({"type": "string"})
    listed: Schema = {"type": "array", "items": {"type": "object"}}
    return {
        "resources": _Value(container["resources"], anything, "the resources of the operator's container"),
        "tolerations": _Value(pod["tolerations"], listed, "the tolerations of its pod"),
        "nodeSelector": _Value(pod["nodeSelector"], texts, "the nodes on which it may run"),
        "affinity": _Value({}, anything, "the affinity of its pod"),
        "priorityClassName": _Value(pod["priorityClassName"], {"type": "string"}, "the priority of its pod"),
        "podAnnotations": _Value({}, texts, "annotations of its pod"),
        "podLabels": _Value({}, texts, "labels of its pod"),
        "podSecurityContext": _Value(pod["securityContext"], anything, "the user of its pod"),
        "containerSecurityContext": _Value(container["securityContext"], anything, "what its container may do"),
        "dnsPolicy": _Value(pod["dnsPolicy"], {"type": "string"}, "the DNS policy of its pod"),
        "dnsConfig": _Value({}, anything, "the DNS settings of its pod"),
        "additionalLabels": _Value({}, texts, "labels of the Deployment"),
    }


def _certificate_values() -> _Value:
    texts: dict[str, Schema] = {name: {"type": "string"} for name in _CERTIFICATES}
    return _Value(
        {"node": dict.fromkeys(_CERTIFICATES, "")},
        _object_of(node=_object_of(**texts)),
        "PEM texts for the Secret netplug-node-certs, all or none; nothing in this release reads it",
    )


def _monitoring_values() -> _Value:
    part = _object_of(enabled={"type": "boolean"}, labels=_map_of({"type": "string"}))
    return _Value(
        {
            "rules": {"enabled": False, "labels": {"app.kubernetes.io/name": "netplug"}},
            "dashboard": {"enabled": False, "labels": {"grafana_dashboard": "1"}},
        },
        _object_of(rules=part, dashboard=part),
        "a PrometheusRule with the alerts, and a ConfigMap with the dashboard for Grafana's sidecar, with their labels",
    )


def _image_value(version: str, text: str) -> _Value:
    name, _, tag = default_image(version).rpartition(":")
    registry, _, path = name.partition("/")
    default = {"registry": f"{registry}/", "image": path, "version": tag}
    members: dict[str, Schema] = {member: {"type": "string"} for member in default}
    return _Value(default, _object_of(**members), text)


def _resource(spec: Schema, text: str) -> _Value:
    schema = copy.deepcopy(spec)
    cast("Json", schema["properties"])["enabled"] = {"type": "boolean", "description": "the object is created"}
    return _Value({"enabled": True}, schema, text)


def _object_of(**members: Schema) -> Schema:
    return {"type": "object", "properties": members}


def _map_of(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _closed(schema: object) -> Schema:
    """A schema of the API as JSON Schema: without its extensions, and with no members but its own."""
    found = dict(cast("Mapping[str, object]", schema))
    if found.pop("x-kubernetes-int-or-string", False):
        found["type"] = ["integer", "string"]
    found = {name: value for name, value in found.items() if not name.startswith("x-kubernetes-")}
    if "properties" in found:
        members = cast("Mapping[str, object]", found["properties"])
        found["properties"] = {name: _closed(member) for name, member in members.items()}
        found["additionalProperties"] = False
    for of_each in ("items", "additionalProperties"):
        if isinstance(found.get(of_each), Mapping):
            found[of_each] = _closed(found[of_each])
    return found


# --- templates -------------------------------------------------------------------------------------------------------


def _objects(version: str) -> tuple[Json, ...]:
    """The objects of the manifest without its Namespace; of the main role also the one without definitions."""
    shipped, image = shipped_objects(), default_image(version)
    whole = [cast("Json", one) for one in render_operator(shipped, image=image)]
    less = [cast("Json", one) for one in render_operator(shipped, image=image, manages_definitions=False)]
    _namespace, account, role, *others = whole
    return account, role, less[2], *others


def _placed(found: Json, template: Template) -> Json:
    """An object in the namespace of the release."""

    def place(value: object) -> object:
        if isinstance(value, Mapping):
            return {
                name: template.scalar(_NAMESPACE)
                if (name, member) == ("namespace", OPERATOR_NAMESPACE)
                else place(member)
                for name, member in value.items()
            }
        return [place(item) for item in value] if isinstance(value, list) else value

    return cast("Json", place(found))


def _rendered(*objects: Json) -> str:
    template = Template()
    return template.render(*(_placed(one, template) for one in objects))


def _rbac(role: Json, reduced: Json, others: list[Json]) -> str:
    """The operator has rights on definitions only if it manages them."""
    return (
        f"{{{{- if .Values.manageCRDs }}}}\n{_rendered(role)}{{{{- else }}}}\n{_rendered(reduced)}{{{{- end }}}}\n"
        f"{_rendered(*others)}"
    )


def _pod_of(deployment: Json) -> tuple[Json, Json]:
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def _deployment(deployment: Json) -> str:
    template = Template()
    found = copy.deepcopy(_placed(deployment, template))
    pod, container = _pod_of(found)
    for name in ("tolerations", "nodeSelector", "affinity", "dnsConfig"):
        pod[name] = template.block(f".Values.{name}")
    for name in ("priorityClassName", "dnsPolicy"):
        pod[name] = template.scalar(f".Values.{name}")
    pod["securityContext"] = template.block(".Values.podSecurityContext")
    container["resources"] = template.block(".Values.resources")
    container["securityContext"] = template.block(".Values.containerSecurityContext")
    container["image"] = template.scalar(f"with .Values.operator }}}}{{{{ {_IMAGE} }}}}{{{{ end")
    container["args"][0] = f"--manage-crds={template.scalar('.Values.manageCRDs')}"
    found["metadata"]["labels"] |= template.members(".Values.additionalLabels")
    metadata = found["spec"]["template"]["metadata"]
    metadata["labels"] |= template.members(".Values.podLabels")
    metadata["annotations"] = template.block(".Values.podAnnotations")
    return template.render(found)


def _uninstall() -> str:
    """The Job that runs before the operator goes, with an account that may delete what it shall."""
    template = Template()
    name = {"name": _UNINSTALL}
    placed = {**name, "namespace": template.scalar(_NAMESPACE)}
    rights = "rbac.authorization.k8s.io"
    plurals = ["installations", *(f"{kind.value.lower()}s" for kind in _COMPONENTS.values())]
    rule = {
        "apiGroups": [OPERATOR_GROUP],
        "resources": plurals,
        "resourceNames": [INSTALLATION_NAME, OVERLAY_NAME],
        "verbs": ["get", "delete"],
    }
    image = template.scalar(f"with .Values.netplugctl }}}}{{{{ {_IMAGE} }}}}{{{{ end")
    container = {
        "name": "netplugctl",
        "image": image,
        "command": ["netplugctl", "uninstall", "cluster"],
        **endpoint_override(),
        "securityContext": template.block(".Values.containerSecurityContext"),
    }
    pod = {
        "hostNetwork": True,
        "dnsPolicy": template.scalar(".Values.dnsPolicy"),
        "serviceAccountName": _UNINSTALL,
        "restartPolicy": "OnFailure",
        "nodeSelector": template.block(".Values.nodeSelector"),
        "tolerations": template.block(".Values.tolerations"),
        "securityContext": template.block(".Values.podSecurityContext"),
        "containers": [container],
    }
    subject = {"kind": "ServiceAccount", "name": _UNINSTALL, "namespace": template.scalar(_NAMESPACE)}
    reference = {"apiGroup": rights, "kind": "ClusterRole", "name": _UNINSTALL}
    hooks: list[tuple[str, str, Json, Json]] = [
        ("v1", "ServiceAccount", placed, {}),
        (f"{rights}/v1", "ClusterRole", name, {"rules": [rule]}),
        (f"{rights}/v1", "ClusterRoleBinding", name, {"roleRef": reference, "subjects": [subject]}),
        ("batch/v1", "Job", placed, {"spec": {"backoffLimit": 3, "template": {"spec": pod}}}),
    ]
    return template.render(
        *(
            {"apiVersion": version, "kind": kind, "metadata": {**metadata, "annotations": _hook(weight)}, **rest}
            for weight, (version, kind, metadata, rest) in enumerate(hooks)
        )
    )


def _hook(weight: int) -> Json:
    """Made in this order before a deletion; removed when all have succeeded, and before the next attempt."""
    return {
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-weight": str(weight),
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    }


def _component(name: str, kind: ComponentKind) -> str:
    return f"""{{{{- if .Values.{name}.enabled }}}}
apiVersion: {INSTALLATION_API_VERSION}
kind: {kind.value}
metadata:
  name: default
spec:
  {{{{- omit .Values.{name} "enabled" | toYaml | nindent 2 }}}}
{{{{- end }}}}
"""


def _certificates() -> str:
    head = """{{- with .Values.certs.node }}
{{- if or .caBundle .cert .key }}
apiVersion: v1
kind: Secret
metadata:
  name: netplug-node-certs
  namespace: {{ $.Release.Namespace }}
type: Opaque
data:
"""
    lines = (
        f'  {key}: {{{{ required "certs.node.{name} is missing: set all of certs.node, or none" .{name} | b64enc }}}}\n'
        for name, key in _CERTIFICATES.items()
    )
    return f"{head}{''.join(lines)}{{{{- end }}}}\n{{{{- end }}}}\n"


_PULL_SECRETS: Final = """{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range $name, $_ := . }}
- name: {{ $name }}
{{- end }}
{{- end }}
"""

_SECRETS: Final = """{{- range $name, $content := .Values.imagePullSecrets }}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name }}
  namespace: {{ $.Release.Namespace }}
type: kubernetes.io/dockerconfigjson
data:
  .dockerconfigjson: {{ $content | b64enc }}
{{- end }}
"""

_ENDPOINT: Final = f"""{{{{- with .Values.kubernetesServiceEndpoint }}}}
{{{{- if .host }}}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {ENDPOINT_CONFIG_MAP}
  namespace: {{{{ $.Release.Namespace }}}}
data:
  KUBERNETES_SERVICE_HOST: {{{{ .host | quote }}}}
  KUBERNETES_SERVICE_PORT: {{{{ .port | quote }}}}
{{{{- end }}}}
{{{{- end }}}}
"""

_MONITORING: Final = """{{- if .Values.monitoring.rules.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: netplug
  namespace: {{ .Release.Namespace }}
  {{- with .Values.monitoring.rules.labels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- omit (.Files.Get "files/prometheus-rules.json" | fromJson) "$comment" | toYaml | nindent 2 }}
{{- end }}
{{- if .Values.monitoring.dashboard.enabled }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: netplug-dashboard
  namespace: {{ .Release.Namespace }}
  {{- with .Values.monitoring.dashboard.labels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  netplug.json: |-
    {{- .Files.Get "files/grafana-dashboard.json" | nindent 4 }}
{{- end }}
"""

_INSTALLATION: Final = f"""{{{{- if .Values.installation.enabled }}}}
{{{{- $spec := omit .Values.installation "enabled" "imagePullSecrets" }}}}
{{{{- $secrets := default list .Values.installation.imagePullSecrets }}}}
{{{{- range $name, $_ := .Values.imagePullSecrets }}}}
{{{{- $secrets = append $secrets (dict "name" $name) }}}}
{{{{- end }}}}
{{{{- if $secrets }}}}
{{{{- $_ := set $spec "imagePullSecrets" $secrets }}}}
{{{{- end }}}}
apiVersion: {INSTALLATION_API_VERSION}
kind: Installation
metadata:
  name: default
spec:
  {{{{- toYaml $spec | nindent 2 }}}}
{{{{- end }}}}
"""

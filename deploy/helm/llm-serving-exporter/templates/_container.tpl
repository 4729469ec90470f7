{{/*
The exporter's container, as every mode has it. Takes a dict: root (the chart's scope), native (whether it is a native sidecar).
*/}}
{{- define "llm-serving-exporter.container" -}}
{{- $values := .root.Values -}}
{{- $sidecar := eq $values.mode "sidecar" -}}
{{- $kubelet := and (eq $values.mode "daemonset") $values.gpu.kubelet -}}
name: llm-serving-exporter
image: "{{ include "llm-serving-exporter.image" .root }}"
imagePullPolicy: "{{ $values.image.pullPolicy }}"
{{- if .native }}
restartPolicy: Always
{{- end }}
args:
  - --config.file=/etc/llm-serving-exporter/exporter.yml
  {{- with $values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  {{- /* beside an engine its pod is the exporter's; elsewhere it is not, and with hostNetwork loopback is the node's */}}
  {{- if $sidecar }}
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: POD_UID
    valueFrom: {fieldRef: {fieldPath: metadata.uid}}
  {{- with $values.sidecar.container }}
  - name: CONTAINER_NAME
    value: {{ . | quote }}
  {{- end }}
  {{- end }}
  {{- /* of a StatefulSet the shard's number */}}
  {{- if ne $values.mode "daemonset" }}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- end }}
  - name: NVIDIA_VISIBLE_DEVICES
    value: {{ ternary "void" $values.gpu.visibleDevices (eq $values.mode "statefulset") | quote }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: "{{ include "llm-serving-exporter.portName" . }}"
    containerPort: {{ $values.port }}
    protocol: TCP
livenessProbe:
  {{ include "llm-serving-exporter.probe" (list .root "/-/healthy") }}
  periodSeconds: 30
  timeoutSeconds: 5
{{- /* beside an engine neither readiness nor startup is probed: they would be the engine's pod's */}}
{{- if not $sidecar }}
readinessProbe:
  {{ include "llm-serving-exporter.probe" (list .root "/-/ready") }}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}
resources:
  {{- toYaml (default dict (ternary $values.sidecar.resources $values.resources $sidecar)) | nindent 2 }}
securityContext:
  {{- include "llm-serving-exporter.securityContext" .root | nindent 2 }}
volumeMounts:
  - {name: llm-serving-exporter-config, mountPath: /etc/llm-serving-exporter, readOnly: true}
  {{- if $values.state.enabled }}
  - {name: llm-serving-exporter-state, mountPath: /var/lib/llm-serving-exporter}
  {{- end }}
  {{- if $kubelet }}
  - {name: pod-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true}
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The kubelet has neither a password nor a certificate, either of which a web config file may ask for. Takes a list: the chart's scope, a path. */}}
{{- define "llm-serving-exporter.probe" -}}
{{- $root := first . -}}
{{- $port := include "llm-serving-exporter.portName" $root -}}
{{- if eq "true" (include "llm-serving-exporter.guarded" $root) -}}
tcpSocket: {port: {{ $port }}}
{{- else -}}
httpGet: {path: "{{ last . }}", port: {{ $port }}, scheme: {{ upper $root.Values.scheme }}}
{{- end -}}
{{- end -}}

{{/* A port of an engine's pod must not be called as one of the engine's is. */}}
{{- define "llm-serving-exporter.portName" -}}
llm-exporter
{{- end -}}

{{/*
The directory of the kubelet's socket is root's: so the DaemonSet runs as root, and everything else as nobody in particular. A null in
`securityContext` takes a key away.
*/}}
{{- define "llm-serving-exporter.securityContext" -}}
{{- $root := and (eq .Values.mode "daemonset") .Values.gpu.kubelet -}}
{{- $made := dict
  "allowPrivilegeEscalation" false
  "readOnlyRootFilesystem" true
  "capabilities" (dict "drop" (list "ALL"))
  "runAsNonRoot" (not $root)
  "seccompProfile" (dict "type" "RuntimeDefault")
-}}
{{- if or $root .Values.fixedUser -}}
  {{- $made = merge $made (dict "runAsUser" (ternary 0 65532 $root) "runAsGroup" (ternary 0 65532 $root)) -}}
{{- end -}}
{{- with .Values.seLinuxOptions }}{{- $_ := set $made "seLinuxOptions" . -}}{{- end -}}
{{- $made = mustMergeOverwrite $made (deepCopy (default dict .Values.securityContext)) -}}
{{- range $key, $value := $made -}}{{- if kindIs "invalid" $value -}}{{- $made = omit $made $key -}}{{- end -}}{{- end -}}
{{- toYaml $made -}}
{{- end -}}

{{/* The volumes of the container above. */}}
{{- define "llm-serving-exporter.volumes" -}}
- name: llm-serving-exporter-config
  configMap: {name: "{{ include "llm-serving-exporter.fullname" . }}-config"}
{{- if .Values.state.enabled }}
- name: llm-serving-exporter-state
  {{- toYaml .Values.state.volume | nindent 2 }}
{{- end }}
{{- if and (eq .Values.mode "daemonset") .Values.gpu.kubelet }}
- name: pod-resources
  hostPath: {path: "{{ printf "%s/pod-resources" (trimSuffix "/" .Values.kubelet.root) }}", type: Directory}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The pod template of DaemonSet and StatefulSet. */}}
{{- define "llm-serving-exporter.pod" -}}
metadata:
  labels:
    {{- include "llm-serving-exporter.labelsWith" (list . .Values.podLabels) | nindent 4 }}
  annotations:
    {{- include "llm-serving-exporter.podAnnotations" (list . "checksum/config") | nindent 4 }}
spec:
  serviceAccountName: "{{ include "llm-serving-exporter.serviceAccountName" . }}"
  automountServiceAccountToken: {{ eq "true" (include "llm-serving-exporter.discovers" .) }}
  terminationGracePeriodSeconds: 10
  {{- if eq .Values.mode "daemonset" }}
  {{- if .Values.daemonset.hostPID }}
  hostPID: true
  {{- end }}
  {{- if .Values.daemonset.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: "{{ . }}"
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: "{{ . }}"
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with concat (default list .Values.tolerations) (ternary (default list .Values.daemonset.tolerations) list (eq .Values.mode "daemonset")) }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - {{ include "llm-serving-exporter.container" (dict "root" . "native" false) | indent 6 | trim }}
  volumes:
    {{- include "llm-serving-exporter.volumes" . | nindent 4 }}
{{- end -}}

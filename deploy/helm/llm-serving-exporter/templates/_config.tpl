{{/*
The exporter's configuration, exporter.yml: what the mode needs, and over it what `config` says (docs/configuration.md).
A list of `config` takes the place of the whole list.
*/}}
{{- define "llm-serving-exporter.config" -}}
{{- $made := dict "web" (dict "listen_address" (printf ":%d" (int .Values.port))) -}}
{{- if eq .Values.mode "sidecar" -}}
  {{- $_ := set $made "targets" (list .Values.sidecar.target) -}}
{{- else if .Values.discovery.enabled -}}
  {{- $sections := list -}}
  {{- range default (list "") .Values.discovery.selectors -}}
    {{- $section := dict -}}
    {{- with . }}{{- $_ := set $section "selector" . -}}{{- end -}}
    {{- with $.Values.discovery.namespaces }}{{- $_ := set $section "namespaces" . -}}{{- end -}}
    {{- with $.Values.discovery.podLabels }}{{- $_ := set $section "pod_labels" . -}}{{- end -}}
    {{- if $.Values.discovery.nodeData }}{{- $_ := set $section "node_data" true -}}{{- end -}}
    {{- if eq $.Values.mode "daemonset" }}{{- $_ := set $section "node" "own" -}}{{- end -}}
    {{- $sections = append $sections $section -}}
  {{- end -}}
  {{- $_ := set $made "kubernetes" $sections -}}
{{- end -}}
{{- if eq .Values.mode "statefulset" -}}
  {{- $_ := set $made "gpu" (dict "enabled" false) -}}
  {{- $_ := set $made "shard" (printf "ordinal/%d" (int .Values.statefulset.shards)) -}}
{{- end -}}
{{- if and (eq .Values.mode "daemonset") .Values.gpu.kubelet -}}
  {{- $_ := set $made "gpu" (dict "pod_resources_socket" "/var/lib/kubelet/pod-resources/kubelet.sock") -}}
{{- end -}}
{{- if .Values.prices -}}
  {{- $_ := set $made "cost" (dict "price_file" "prices.yml") -}}
{{- end -}}
{{- mustMergeOverwrite $made (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{/* The data of the ConfigMap. */}}
{{- define "llm-serving-exporter.configFiles" -}}
exporter.yml: |
  {{- include "llm-serving-exporter.config" . | nindent 2 }}
{{- with .Values.prices }}
prices.yml: |
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Where the series are: `web.telemetry_path` of the configuration. */}}
{{- define "llm-serving-exporter.path" -}}
{{- dig "web" "telemetry_path" "/metrics" .Values.config -}}
{{- end -}}

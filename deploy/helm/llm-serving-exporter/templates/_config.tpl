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
  {{- $gpu := dict "pod_resources_socket" "/var/lib/kubelet/pod-resources/kubelet.sock" -}}
  {{- if .Values.gpu.dra }}{{- $_ := set $gpu "dra" true -}}{{- end -}}
  {{- $_ := set $made "gpu" $gpu -}}
{{- end -}}
{{- if .Values.prices -}}
  {{- $_ := set $made "cost" (dict "price_file" "prices.yml") -}}
{{- end -}}
{{- if .Values.state.enabled -}}
  {{- $_ := set $made "state_dir" "/var/lib/llm-serving-exporter" -}}
{{- end -}}
{{- mustMergeOverwrite $made (deepCopy (default dict .Values.config)) | toYaml -}}
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
{{- dig "telemetry_path" "/metrics" (include "llm-serving-exporter.web" . | fromYaml) -}}
{{- end -}}

{{/* The section `web` of the configuration. */}}
{{- define "llm-serving-exporter.web" -}}
{{- default dict (get (default dict .Values.config) "web") | toYaml -}}
{{- end -}}

{{/* Whether a web config file may ask a client for a password or a certificate, or turn on TLS: "true" or "". */}}
{{- define "llm-serving-exporter.guarded" -}}
{{- $web := include "llm-serving-exporter.web" . | fromYaml -}}
{{- $said := list (default dict $web.config).file -}}
{{- range .Values.extraArgs -}}{{- $said = append $said (contains "web.config.file" .) -}}{{- end -}}
{{- range .Values.extraEnv -}}{{- $said = append $said (eq "LLM_SERVING_EXPORTER_WEB_CONFIG_FILE" (default "" .name)) -}}{{- end -}}
{{- if compact $said -}}true{{- end -}}
{{- end -}}

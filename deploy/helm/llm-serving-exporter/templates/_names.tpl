{{/* Names, labels and images. */}}

{{- define "llm-serving-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
At most 52 characters: a StatefulSet's revisions add to it, and 63 is the end. The name of a release may have dots, that of a Service none.
*/}}
{{- define "llm-serving-exporter.fullname" -}}
{{- $name := include "llm-serving-exporter.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* Of the review. Jobs add to the name of a CronJob, which is refused above 52 characters. */}}
{{- define "llm-serving-exporter.reportName" -}}
{{- include "llm-serving-exporter.fullname" . | trunc 45 | trimSuffix "-" }}-report
{{- end -}}

{{/* Of roles and bindings. The colon is in no name of a namespace, so that no two releases come to one name. */}}
{{- define "llm-serving-exporter.roleName" -}}
{{ .Release.Namespace }}:{{ include "llm-serving-exporter.fullname" . }}
{{- end -}}

{{- define "llm-serving-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "llm-serving-exporter.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: {{ .Values.mode }}
{{- end -}}

{{/*
Labels of an object, each key once. Takes a list: the chart's scope, and maps of more labels, of which a later one wins. What selects
pods always stands: checks.yaml refuses values that would change it.
*/}}
{{- define "llm-serving-exporter.labelsWith" -}}
{{- $root := first . -}}
{{- $made := dict
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")
-}}
{{- range prepend (rest .) $root.Values.commonLabels -}}
  {{- $made = mergeOverwrite $made (deepCopy (default dict .)) -}}
{{- end -}}
{{- mergeOverwrite $made (include "llm-serving-exporter.selectorLabels" $root | fromYaml) | toYaml -}}
{{- end -}}

{{- define "llm-serving-exporter.labels" -}}
{{- include "llm-serving-exporter.labelsWith" (list .) -}}
{{- end -}}

{{/*
The same on what the Prometheus operator and Grafana's sidecar load, which they do only where the labels are the ones that they select by.
Takes a list: the chart's scope, and a map of more labels.
*/}}
{{- define "llm-serving-exporter.monitoredLabels" -}}
{{- $root := first . -}}
{{- $release := dict -}}
{{- with $root.Values.scrape.release -}}{{- $_ := set $release "release" . -}}{{- end -}}
{{- include "llm-serving-exporter.labelsWith" (list $root $release (last .)) -}}
{{- end -}}

{{/* Annotations of the exporter's pod, each key once. Takes a list: the chart's scope, the key of the checksum. */}}
{{- define "llm-serving-exporter.podAnnotations" -}}
{{- $root := first . -}}
{{- $made := dict (last .) (include "llm-serving-exporter.configFiles" $root | sha256sum) -}}
{{- if eq $root.Values.scrape.kind "annotations" -}}
  {{- $_ := set $made "prometheus.io/scrape" "true" -}}
  {{- $_ := set $made "prometheus.io/scheme" $root.Values.scheme -}}
  {{- $_ := set $made "prometheus.io/port" ($root.Values.port | toString) -}}
  {{- $_ := set $made "prometheus.io/path" (include "llm-serving-exporter.path" $root) -}}
{{- end -}}
{{- mergeOverwrite $made (deepCopy (default dict $root.Values.podAnnotations)) | toYaml -}}
{{- end -}}

{{- define "llm-serving-exporter.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "llm-serving-exporter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "llm-serving-exporter.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* Whether the exporter asks the API server: "true" or "". A sidecar reads the one engine beside it. */}}
{{- define "llm-serving-exporter.discovers" -}}
{{- if and (ne .Values.mode "sidecar") (or .Values.discovery.enabled (hasKey (default dict .Values.config) "kubernetes")) -}}true{{- end -}}
{{- end -}}

{{/* The namespaces of the ConfigMap and of the pods that a sidecar is pasted into. */}}
{{- define "llm-serving-exporter.sidecarNamespaces" -}}
{{- default (list .Release.Namespace) .Values.sidecar.namespaces | toJson -}}
{{- end -}}

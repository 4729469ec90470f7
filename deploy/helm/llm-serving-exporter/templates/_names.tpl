{{/* Names, labels and images. */}}

{{- define "llm-serving-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 52 characters: a StatefulSet's pods and a CronJob's jobs add to it, and 63 is the end. */}}
{{- define "llm-serving-exporter.fullname" -}}
{{- $name := include "llm-serving-exporter.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "llm-serving-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "llm-serving-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Values.mode }}
{{- end -}}

{{- define "llm-serving-exporter.labels" -}}
{{ include "llm-serving-exporter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The Prometheus operator loads an object only where its labels are the ones that it selects by. */}}
{{- define "llm-serving-exporter.monitoredLabels" -}}
{{ include "llm-serving-exporter.labels" . }}
{{- with .Values.scrape.release }}
release: {{ . | quote }}
{{- end }}
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
{{- if and (ne .Values.mode "sidecar") (or .Values.discovery.enabled (hasKey .Values.config "kubernetes")) -}}true{{- end -}}
{{- end -}}

{{/* The namespaces of the ConfigMap and of the pods that a sidecar is pasted into. */}}
{{- define "llm-serving-exporter.sidecarNamespaces" -}}
{{- default (list .Release.Namespace) .Values.sidecar.namespaces | toJson -}}
{{- end -}}

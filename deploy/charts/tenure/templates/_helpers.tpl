{{- define "tenure.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "tenure.fullname" -}}
{{- $name := include "tenure.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "tenure.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "tenure.fullname" .) }}
{{- end }}

{{- define "tenure.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tenure.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tenure.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "tenure.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Annotations of an object, from maps of which the first takes precedence. */}}
{{- define "tenure.annotations" }}
{{- $all := dict }}
{{- range . }}{{ $all = merge $all . }}{{ end }}
{{- with $all }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- define "tenure.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- /* Begins with the version, by which builds are compared, unless the tag is not a version. */}}
{{- define "tenure.build" -}}
{{- if .Values.image.digest }}
{{- printf "%s+%s" .Chart.AppVersion (.Values.image.digest | trimPrefix "sha256:" | trunc 12) }}
{{- else }}
{{- .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* Of the pods of Jobs, which must not match the selectors of the worker. */}}
{{- define "tenure.promotionName" -}}
{{- printf "%s-promotion" (include "tenure.name" .) }}
{{- end }}

{{- define "tenure.metricsPort" -}}
{{- dig "METRICS_PORT" 8080 .Values.settings | int }}
{{- end }}

{{- /* Not empty if a value requests the metrics port. */}}
{{- define "tenure.metricsExposed" -}}
{{- if or .Values.metrics.service.enabled .Values.metrics.serviceMonitor.enabled .Values.networkPolicy.metricsFrom }}
{{- if eq (include "tenure.metricsPort" .) "0" }}
{{- fail "settings.METRICS_PORT: 0 disables the metrics that other values request; set a port such as 8080, or unset metrics.service.enabled, metrics.serviceMonitor.enabled and networkPolicy.metricsFrom" }}
{{- end }}
true
{{- end }}
{{- end }}

{{- define "tenure.healthPort" -}}
{{- .Values.settings.HEALTH_PROBE_PORT | default 8081 | int }}
{{- end }}

{{- /* A setting in the format of its environment variable: whole numbers without an exponent, maps as Name=bool,... */}}
{{- define "tenure.setting" -}}
{{- if kindIs "map" . }}
{{- $parts := list }}
{{- range $name, $on := . }}{{ $parts = append $parts (printf "%s=%t" $name $on) }}{{ end }}
{{- join "," $parts }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}
{{- printf "%.0f" . }}
{{- else }}
{{- toString . }}
{{- end }}
{{- end }}

{{- /* TCP ports that the worker calls, as a JSON list. */}}
{{- define "tenure.egressPorts" -}}
{{- $ports := list }}
{{- range .Values.networkPolicy.egressPorts }}{{ $ports = append $ports (int .) }}{{ end }}
{{- $ports = append $ports (splitList ":" .Values.settings.TEMPORAL_ADDRESS | last | int) }}
{{- range compact (list .Values.settings.PROMETHEUS_URL .Values.settings.OTEL_EXPORTER_OTLP_ENDPOINT) }}
{{- $url := urlParse . }}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" }}
{{- $ports = append $ports ($port | default (ternary "443" "80" (eq $url.scheme "https")) | int) }}
{{- end }}
{{- $ports | uniq | toJson }}
{{- end }}

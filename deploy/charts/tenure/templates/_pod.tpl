{{- /* The fields of a pod and of its container that the worker and the Jobs of a promotion share. */}}
{{- define "tenure.pod" -}}
{{- $tls := .Values.temporal.tls -}}
serviceAccountName: {{ include "tenure.serviceAccountName" . }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- $clusterName := regexMatch "[.]svc([.]|:)" .Values.settings.TEMPORAL_ADDRESS }}
{{- if and (eq .Values.dnsPolicy "Default") $clusterName (not .Values.dnsConfig) }}
{{- fail (printf "dnsPolicy: Default does not resolve TEMPORAL_ADDRESS %s of the cluster; use an address that the VPC resolves, such as that of an internal load balancer, or dnsPolicy: ClusterFirst" .Values.settings.TEMPORAL_ADDRESS) }}
{{- end }}
dnsPolicy: {{ .Values.dnsPolicy }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.initContainers }}
initContainers:
{{- toYaml . | nindent 0 }}
{{- end }}
volumes:
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- if $tls.secret }}
- name: temporal
  secret:
    secretName: {{ $tls.secret }}
    defaultMode: 0440
    items:
    {{- if $tls.ca }}
    - {key: {{ $tls.ca | quote }}, path: ca.crt}
    {{- end }}
    {{- if $tls.cert }}
    - {key: {{ $tls.cert | quote }}, path: tls.crt}
    - {key: {{ $tls.key | quote }}, path: tls.key}
    {{- end }}
{{- end }}
{{- with .Values.temporal.apiKey }}
{{- if .secret }}
- name: temporal-key
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
    - {key: {{ .key | quote }}, path: api-key}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tenure.nodeAffinity" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    {{- /* The worker must not run on nodes that it drains and terminates. */}}
    {{- range (.Values.nodeAffinity | default (list dict)) }}
    - matchExpressions:
      - key: karpenter.sh/nodepool
        operator: DoesNotExist
      {{- with .matchExpressions }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
{{- end }}

{{- define "tenure.container" -}}
{{- $files := "/etc/tenure/temporal" }}
{{- $tls := .Values.temporal.tls -}}
image: {{ include "tenure.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
{{- toYaml . | nindent 0 }}
{{- end }}
env:
- name: SYSTEM_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ include "tenure.setting" $value | quote }}
{{- end }}
{{- if .Values.workerVersioning }}
- name: TEMPORAL_WORKER_BUILD_ID
  value: {{ include "tenure.build" . | quote }}
{{- end }}
{{- with .Values.temporal.apiKey }}
{{- if .secret }}
- name: TEMPORAL_API_KEY_PATH
  value: {{ $files }}-key/api-key
{{- end }}
{{- end }}
{{- if $tls.secret }}
{{- if not (hasKey .Values.settings "TEMPORAL_TLS") }}
- name: TEMPORAL_TLS
  value: "true"
{{- end }}
{{- if $tls.ca }}
- name: TEMPORAL_TLS_SERVER_CA_CERT_PATH
  value: {{ $files }}/ca.crt
{{- end }}
{{- if $tls.cert }}
- name: TEMPORAL_TLS_CLIENT_CERT_PATH
  value: {{ $files }}/tls.crt
- name: TEMPORAL_TLS_CLIENT_KEY_PATH
  value: {{ $files }}/tls.key
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{- toYaml . | nindent 0 }}
{{- end }}
volumeMounts:
- name: tmp
  mountPath: /tmp
{{- if $tls.secret }}
- name: temporal
  mountPath: {{ $files }}
  readOnly: true
{{- end }}
{{- if .Values.temporal.apiKey.secret }}
- name: temporal-key
  mountPath: {{ $files }}-key
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "gavel.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Name of what belongs to no namespace: two releases in two namespaces may have the same name. */}}
{{- define "gavel.clusterName" -}}
{{ printf "gavel-%s-%s" .Release.Namespace (include "gavel.name" .) }}
{{- end }}

{{- define "gavel.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "gavel.selector" -}}
app.kubernetes.io/name: gavel
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: service
{{- end }}

{{- define "gavel.databaseSelector" -}}
app.kubernetes.io/name: gavel
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: database
{{- end }}

{{- define "gavel.labels" -}}
app.kubernetes.io/name: gavel
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "gavel.account" -}}
{{ printf "system:serviceaccount:%s:%s" .Release.Namespace (include "gavel.name" .) }}
{{- end }}

{{- define "gavel.sharedClaim" -}}
{{ .Values.shared.existingClaim | default (printf "%s-shared" (include "gavel.name" .)) }}
{{- end }}

{{- define "gavel.stateClaim" -}}
{{ .Values.state.existingClaim | default (printf "%s-state" (include "gavel.name" .)) }}
{{- end }}

{{/* All settings, as an object: the chart's own, and over them those of the values. */}}
{{- define "gavel.settings" -}}
{{- $section := dict "namespace" .Release.Namespace "image" (include "gavel.image" .) }}
{{- if .Values.shared.enabled }}
{{- $claim := dict "persistentVolumeClaim" (dict "claimName" (include "gavel.sharedClaim" .)) }}
{{- $_ := set $section "shared_volume" $claim }}
{{- else }}
{{- $_ := set $section "orders" "connection" }}
{{- end }}
{{- if .Values.pullSecrets }}{{ $_ := set $section "pull_secrets" .Values.pullSecrets }}{{ end }}
{{- $scheme := "http" }}
{{- if .Values.service.tlsSecret }}{{ $scheme = "https" }}{{ end }}
{{- $url := printf "%s://%s.%s.svc:%v" $scheme (include "gavel.name" .) .Release.Namespace .Values.service.port }}
{{- $own := dict "backend" "kubernetes" "host" "0.0.0.0" "port" 8080 "public_url" $url "kubernetes" $section }}
{{- if .Values.service.tlsSecret }}
{{- $_ := set $own "tls_cert_file" "/tls/tls.crt" }}
{{- $_ := set $own "tls_key_file" "/tls/tls.key" }}
{{- end }}
{{- mustMergeOverwrite $own (deepCopy .Values.settings) | toJson }}
{{- end }}

{{- define "gavel.servesTrainingJobs" -}}
{{- $settings := include "gavel.settings" . | fromJson }}
{{- if ne (dig "kubernetes" "training_jobs" "all" $settings) "off" }}true{{ end }}
{{- end }}

{{- define "gavel.cordons" -}}
{{- $settings := include "gavel.settings" . | fromJson }}
{{- if dig "kubernetes" "cordons" true $settings }}true{{ end }}
{{- end }}

{{- define "gavel.sharedDir" -}}
{{- $settings := include "gavel.settings" . | fromJson }}
{{- dig "kubernetes" "shared_dir" "/gavel" $settings }}
{{- end }}

{{/* Ends the rendering where values do not go together. */}}
{{- define "gavel.check" -}}
{{- $settings := include "gavel.settings" . | fromJson }}
{{- if ne (dig "kubernetes" "namespace" "" $settings) .Release.Namespace }}
{{- fail "settings.kubernetes.namespace is the namespace of the release: the shared claim is there" }}
{{- end }}
{{- $isUrl := contains "://" (dig "kubernetes" "checkpoint_dir" "" $settings) }}
{{- $connects := eq (dig "kubernetes" "orders" "files" $settings) "connection" }}
{{- if and (not .Values.shared.enabled) (not (and $isUrl $connects)) }}
{{- fail "shared.enabled: without a shared volume settings.kubernetes.checkpoint_dir is an fsspec URL, such as s3://bucket/gavel, and settings.kubernetes.orders is connection" }}
{{- end }}
{{- if ne (int $settings.port) 8080 }}
{{- fail "settings.port is 8080 in the pod; service.port is the port of the Service" }}
{{- end }}
{{- if gt (int .Values.replicas) 1 }}
{{- if eq .Values.database.kind "sqlite" }}
{{- fail "replicas: more than one needs database.kind postgresql or external" }}
{{- end }}
{{- if and (not .Values.state.existingClaim) (ne .Values.state.accessMode "ReadWriteMany") }}
{{- fail "replicas: more than one needs state.accessMode ReadWriteMany" }}
{{- end }}
{{- end }}
{{- if and (eq .Values.database.kind "external") (not .Values.database.urlSecret) }}
{{- fail "database.urlSecret: an external database needs the name of a Secret with its url" }}
{{- end }}
{{- end }}

{{/* Releases before 1.30 do not have them. */}}
{{- define "gavel.servesPolicies" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{- define "gavel.domain" -}}
{{ .Release.Namespace }}.gang.gavel.internal/
{{- end }}

{{- define "gavel.probe" -}}
httpGet:
  path: /healthz
  port: http
  {{- if .Values.service.tlsSecret }}
  scheme: HTTPS
  {{- end }}
  httpHeaders:
    - {name: Host, value: 127.0.0.1}
timeoutSeconds: 5
{{- end }}

{{- define "gavel.gangs" -}}
matchExpressions:
  - {key: gavel.internal/allocation, operator: Exists}
{{- end }}

{{/* What a node has, and had, as variables of an admission policy. */}}
{{- define "gavel.amounts" -}}
{{- range list "capacity" "allocatable" -}}
- name: {{ . }}
  expression: "has(object.status) && has(object.status.{{ . }}) ? object.status.{{ . }} : {}"
- name: {{ . }}Before
  expression: >-
    request.operation == "UPDATE" && has(oldObject.status) && has(oldObject.status.{{ . }}) ?
    oldObject.status.{{ . }} : {}
{{ end -}}
{{- end }}

{{/* An admission policy is in force for all that it matches: (list CONTEXT WHICH). */}}
{{- define "gavel.bound" -}}
{{- $context := first . }}
{{- $name := printf "%s-%s" (include "gavel.clusterName" $context) (last .) }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels: {{- include "gavel.labels" $context | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end }}

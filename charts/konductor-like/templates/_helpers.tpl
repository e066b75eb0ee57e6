{{/* A file that `make chart` copied from manifests/, for the namespace of this release. Takes root and name. */}}
{{- define "konductor-like.file" -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $file := .root.Files.Get (printf "files/%s" .name) -}}
{{- required (printf "the chart lacks files/%s: run `make chart`" .name) $file
  | replace "namespace: konductor-like" (printf "namespace: %s" $namespace)
  | replace "serviceaccount:konductor-like:" (printf "serviceaccount:%s:" $namespace)
  | replace "resources: [namespaces]\n    resourceNames: [konductor-like]" (printf "resources: [namespaces]\n    resourceNames: [%s]" $namespace) -}}
{{- end -}}

{{/* One object of the Prometheus operator, with the labels that the user's Prometheus selects. Takes root,
name, labels, and projectUrl, to which runbooks link. Without it an alert names the command that explains it; family is
what that command wants before the alert's name. */}}
{{- define "konductor-like.labelled" -}}
{{- $family := .family | default "" -}}
{{- $object := include "konductor-like.file" . | replace "PROJECT_URL" (.projectUrl | default "") | fromYaml -}}
{{- if not .projectUrl }}{{ range $group := $object.spec.groups }}{{ range $rule := $group.rules }}{{ if $rule.alert -}}
{{- $_ := unset $rule.annotations "runbook_url" -}}
{{- $_ := set $rule.annotations "runbook" (printf "konductor-like explain %s%s" $family $rule.alert) -}}
{{- end }}{{ end }}{{ end }}{{ end -}}
{{- $_ := set $object.metadata "labels" (merge (dict) .labels ($object.metadata.labels | default dict)) -}}
{{- toYaml $object -}}
{{- end -}}

{{/* The dashboard, for the audit trail of this release's namespace. It links to runbooks if prometheusRule.projectUrl is
set. */}}
{{- define "konductor-like.dashboard" -}}
{{- $text := .Files.Get "files/grafana_dashboard.json" -}}
{{- $text = required "the chart lacks files/grafana_dashboard.json: run `make chart`" $text -}}
{{- $links := `"(links|value)": \[[^\]]*PROJECT_URL(?:[^\[\]]|\[\])*\]` -}}
{{- $projectUrl := .Values.prometheusRule.projectUrl -}}
{{- if not $projectUrl }}{{ $text = regexReplaceAll $links $text `"${1}": []` }}{{ end -}}
{{- $text | replace "PROJECT_URL" ($projectUrl | default "")
  | replace `k8s_namespace_name=\"konductor-like\"` (printf `k8s_namespace_name=\"%s\"` .Release.Namespace) -}}
{{- end -}}

{{/* The reference of an image. Takes root and image. */}}
{{- define "konductor-like.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The ConfigMap's data. Helm reads whole numbers as floats, which would print as 1e+06. */}}
{{- define "konductor-like.settings" -}}
{{- $settings := dict "LOG_ENDPOINT" .Values.loki.endpoint -}}
{{- with .Values.loki.tenant }}{{ $_ := set $settings "KONDUCTOR_LOKI_TENANT" . }}{{ end -}}
{{- if ne .Release.Namespace "konductor-like" -}}
{{- $_ := set $settings "KONDUCTOR_EXCLUDED_NAMESPACES" .Release.Namespace -}}
{{- end -}}
{{- if .Values.nodeCondition.enabled }}{{ $_ := set $settings "KONDUCTOR_NODE_CONDITION" .Values.nodeCondition.type }}{{ end -}}
{{- if .Values.jobEvents.enabled }}{{ $_ := set $settings "KONDUCTOR_JOB_EVENTS" "true" }}{{ end -}}
{{- with .Values.gpuAlerts.endpoint }}{{ $_ := set $settings "KONDUCTOR_ALERTS_ENDPOINT" . }}{{ end -}}
{{- with .Values.validation }}{{ if .enabled -}}
{{- $_ := set $settings "KONDUCTOR_VALIDATION_IMAGE" .image -}}
{{- $_ := set $settings "KONDUCTOR_VALIDATION_LEVEL" (toString .level) -}}
{{- with .command }}{{ $_ := set $settings "KONDUCTOR_VALIDATION_COMMAND" . }}{{ end -}}
{{- with .tolerations }}{{ $_ := set $settings "KONDUCTOR_VALIDATION_TOLERATIONS" (join "," .) }}{{ end -}}
{{- if ne .namespace "konductor-like-validation" }}{{ $_ := set $settings "KONDUCTOR_VALIDATION_NAMESPACE" .namespace }}{{ end -}}
{{- end }}{{ end -}}
{{- with .Values.recovery.nodeSelector }}{{ $_ := set $settings "KONDUCTOR_RECOVERY_NODE_SELECTOR" . }}{{ end -}}
{{- range $name, $value := .Values.settings -}}
{{- $text := toString $value -}}
{{- if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ $text = printf "%.0f" $value }}{{ end }}{{ end -}}
{{- $_ := set $settings $name $text -}}
{{- end -}}
{{- range $name, $value := $settings }}
{{ $name }}: {{ $value | quote }}
{{- end -}}
{{- end -}}

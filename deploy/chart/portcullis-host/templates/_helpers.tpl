{{- define "host.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* What the Pods of this release alone have: selectors never change. */}}
{{- define "host.selector" -}}
app.kubernetes.io/name: portcullis-host
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: host
{{- end -}}

{{- define "host.labels" -}}
{{ include "host.selector" . }}
app.kubernetes.io/part-of: portcullis
{{- end -}}

{{- define "host.secret" -}}
{{ .Values.certificate.secretName | default (printf "%s-tls" (include "host.fullname" .)) }}
{{- end -}}

{{/* Mistakes that a schema of one value does not see. */}}
{{- define "host.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is missing: the image of the host" -}}
{{- end -}}
{{- if and .Values.certificate.certManager.enabled (not .Values.certificate.certManager.identity) -}}
{{- fail "certificate.certManager.identity is missing: a URI that spec.hosts of the HookRoute names, for example spiffe://mesh/imagepolicy" -}}
{{- end -}}
{{- end -}}

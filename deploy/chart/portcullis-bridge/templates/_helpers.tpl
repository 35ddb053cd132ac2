{{- define "bridge.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What the bridges alone have: selectors never change. */}}
{{- define "bridge.selector" -}}
app.kubernetes.io/name: portcullis
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: bridge
{{- end -}}

{{- define "bridge.labels" -}}
{{ include "bridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: portcullis
{{- end -}}

{{/* Mistakes that a schema of one value does not see. */}}
{{- define "bridge.check" -}}
{{- if not .Values.cluster -}}
{{- fail "cluster is missing: the name of this cluster, as its Cluster document has it" -}}
{{- end -}}
{{- if not .Values.dispatchers -}}
{{- fail "dispatchers are missing: host:port of the mesh's listener for hosts, for example mesh.example.com:8444" -}}
{{- end -}}
{{- if not (or .Values.callers.capabilitySecretName .Values.callers.identities) -}}
{{- fail "nothing says how the API servers are known: set callers.capabilitySecretName, or callers.identities and callers.caSecretName" -}}
{{- end -}}
{{- if ne (empty .Values.callers.identities) (empty .Values.callers.caSecretName) -}}
{{- fail "callers.identities and callers.caSecretName go together" -}}
{{- end -}}
{{- end -}}

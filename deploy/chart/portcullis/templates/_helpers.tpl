{{- define "portcullis.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What the dispatchers alone have: selectors never change. */}}
{{- define "portcullis.selector" -}}
app.kubernetes.io/name: portcullis
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: dispatcher
{{- end -}}

{{- define "portcullis.labels" -}}
{{ include "portcullis.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: portcullis
{{- end -}}

{{- define "portcullis.host.selector" -}}
app.kubernetes.io/name: imagepolicy
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: host
{{- end -}}

{{- define "portcullis.certificates.labels" -}}
app.kubernetes.io/name: portcullis
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: certificates
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: portcullis
{{- end -}}

{{/* The Pod that makes and renews certificates. */}}
{{- define "portcullis.certificates.pod" -}}
{{- $name := include "portcullis.fullname" . -}}
{{- $self := .Values.certificates.self -}}
metadata:
  labels: {{- include "portcullis.certificates.labels" . | nindent 4 }}
spec:
  serviceAccountName: {{ $name }}-certificates
  automountServiceAccountToken: true
  enableServiceLinks: false
  restartPolicy: OnFailure
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 2 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
  - name: certificates
    image: {{ include "portcullis.image" (dict "image" .Values.image "chart" .Chart) }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
    - certs
    - keep
    - --namespace={{ .Release.Namespace }}
    - --authority={{ $name }}-ca
    - --server={{ .Values.certificates.secretName }}={{ concat (list (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s-hosts.%s.svc" $name .Release.Namespace)) $self.dnsNames $self.ipAddresses | join "," }}
    {{- if .Values.exampleHost.enabled }}
    - --client={{ .Values.exampleHost.secretName }}={{ .Values.exampleHost.identity }}
    {{- end }}
    {{- range $self.clients }}
    - --client={{ .secretName }}={{ .identity }}
    {{- end }}
    - --ttl={{ $self.duration }}
    - --authority-ttl={{ $self.authorityDuration }}
    - --overlap={{ $self.overlap }}
    {{- with $self.entries }}
    - --entries={{ . }}
    {{- end }}
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {memory: 128Mi}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
{{- end -}}

{{/* The image of a dictionary with image and chart. */}}
{{- define "portcullis.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "portcullis.configMap" -}}
{{ .Values.configuration.existingConfigMap | default (printf "%s-config" (include "portcullis.fullname" .)) }}
{{- end -}}

{{- define "portcullis.issuer" -}}
{{ .Values.certificates.certManager.issuerRef.name | default (include "portcullis.fullname" .) }}
{{- end -}}

{{/* Mistakes that a schema of one value does not see. */}}
{{- define "portcullis.check" -}}
{{- if and (eq .Values.store.kind "embedded") (ne (int .Values.replicas) 1) -}}
{{- fail "store.kind embedded has one dispatcher: set replicas to 1, or take store.kind etcd" -}}
{{- end -}}
{{- if and (eq .Values.store.kind "etcd") (not .Values.store.etcd.endpoints) -}}
{{- fail "store.kind etcd needs store.etcd.endpoints" -}}
{{- end -}}
{{- if and .Values.certificates.self.enabled .Values.certificates.certManager.enabled -}}
{{- fail "certificates.self.enabled and certificates.certManager.enabled write the same Secrets: set one of them" -}}
{{- end -}}
{{- if .Values.configuration.existingConfigMap -}}
{{- range $name, $set := dict "configuration.files" .Values.configuration.files "cluster.name" .Values.cluster.name
      "exampleHost.enabled" .Values.exampleHost.enabled "policies.library" .Values.policies.library -}}
{{- if $set -}}
{{- fail (printf "%s is written into the ConfigMap of the chart: leave configuration.existingConfigMap empty" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.cluster.capabilities (not .Values.cluster.name) -}}
{{- fail "cluster.capabilities stand in the Cluster document of the chart: set cluster.name" -}}
{{- end -}}
{{- if and .Values.cluster.registration.url (not .Values.cluster.name) -}}
{{- fail "cluster.registration stands in the Cluster document of the chart: set cluster.name" -}}
{{- end -}}
{{- if and .Values.cluster.rotateCapability (not (and .Values.cluster.registration.url .Values.capabilityKey.secretName)) -}}
{{- fail "cluster.rotateCapability is for the entries that dispatchers keep: set cluster.registration.url and capabilityKey.secretName" -}}
{{- end -}}
{{- if and .Values.cluster.name (not .Values.cluster.read) -}}
{{- fail "cluster.name needs cluster.read: the document says that the dispatchers ask this cluster" -}}
{{- end -}}
{{- end -}}

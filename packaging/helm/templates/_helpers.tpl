{{- define "foretool.name" -}}
{{- $name := default .Chart.Name .Release.Name -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "foretool.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "foretool.labels" -}}
{{ include "foretool.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* mcp.json, with the host that clients use among those that are served */ -}}
{{- define "foretool.config" -}}
{{- $hosts := .Values.foretool.allowed_hosts | default list -}}
{{- if .Values.host -}}{{- $hosts = append $hosts .Values.host | uniq -}}{{- end -}}
{{- $block := merge (dict "allowed_hosts" $hosts) .Values.foretool -}}
{{- dict "mcpServers" .Values.mcpServers "foretool" $block | toPrettyJson -}}
{{- end -}}

{{- /* What cannot work is refused before anything is installed */ -}}
{{- define "foretool.check" -}}
{{- if and (not .Values.database.existingSecret) (or .Values.autoscaling.enabled (gt (int .Values.replicas) 1)) -}}
{{- fail "more than one replica needs PostgreSQL: set database.existingSecret" -}}
{{- end -}}
{{- if not (or .Values.foretool.access .Values.foretool.tokens .Values.foretool.token) -}}
{{- fail "nobody could come in: set foretool.access or foretool.tokens" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.host) -}}
{{- fail "an ingress needs a name: set host" -}}
{{- end -}}
{{- end -}}

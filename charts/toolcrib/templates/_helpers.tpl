{{- define "toolcrib.name" -}}
{{- default .Chart.Name .Values.nameOverride -}}
{{- end -}}

{{/* Also the name of the cluster-wide objects: two releases need two names. */}}
{{- define "toolcrib.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := include "toolcrib.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "toolcrib.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: toolcrib
app.kubernetes.io/name: {{ include "toolcrib.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{/* (dict "root" . "component" "webhook") */}}
{{- define "toolcrib.selector" -}}
app.kubernetes.io/name: {{ include "toolcrib.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The same as text, as `kubectl get -l` takes it. */}}
{{- define "toolcrib.selection" -}}
app.kubernetes.io/name={{ include "toolcrib.name" .root }},app.kubernetes.io/instance={{ .root.Release.Name }},app.kubernetes.io/component={{ .component }}
{{- end -}}

{{/* (dict "root" . "image" .Values.image). A runtime that is given a digest does not look at the tag. */}}
{{- define "toolcrib.image" -}}
{{- $repository := .image.repository -}}
{{- with .root.Values.global.imageRegistry -}}
{{- $repository = printf "%s/%s" . (trimPrefix "docker.io/" $repository) -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The namespaces in secretNamespaces that do not exist. `helm template` looks at no cluster: it does not find
kube-system either, and the list is empty. */}}
{{- define "toolcrib.missingNamespaces" -}}
{{- $missing := list -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- range .Values.secretNamespaces -}}
{{- if not (lookup "v1" "Namespace" "" .) -}}
{{- $missing = append $missing . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- join "," $missing -}}
{{- end -}}

{{- define "toolcrib.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "toolcrib.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Replicas on different nodes, where there are several. (dict "root" . "component" …) */}}
{{- define "toolcrib.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "toolcrib.selector" . | nindent 6 }}
{{- end -}}

{{/* What controller and webhook must know alike, so that both refuse the same hosts. */}}
{{- define "toolcrib.hosts" -}}
{{- $name := include "toolcrib.fullname" . -}}
- --namespace={{ .Release.Namespace }}
- --webhook-service={{ $name }}-webhook
- --link-service={{ $name }}-link
{{- with .Values.controller.refusedHosts }}
- --refused-hosts={{ join "," . }}
{{- end }}
- --cluster-domain={{ .Values.dns.clusterDomain }}
{{- end }}

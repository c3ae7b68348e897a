{{- define "faregate.labels" -}}
app.kubernetes.io/name: faregate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The program that clients call. */}}
{{- define "faregate.public" -}}
{{ ternary "faregate" "inference-gateway" .Values.oneProcess }}
{{- end }}

{{- define "faregate.image" -}}
{{ .root.Values.imageRegistry }}{{ .component }}:{{ .values.imageTag | default .root.Values.imageTag | default .root.Chart.AppVersion }}
{{- end }}

{{/* URLs of all key-services at a port, in the order of their numbers. */}}
{{- define "faregate.keyServices" -}}
{{- $scheme := ternary "https" "http" (ne .root.Values.internalTlsSecret "") -}}
{{- $name := printf "%s-key-service" .root.Release.Name -}}
{{- $urls := list -}}
{{- range $number := until (int .root.Values.keyService.replicas) -}}
{{- $urls = append $urls (printf "%s://%s-%d.%s.%s.svc:%d" $scheme $name $number $name $.root.Release.Namespace (int $.port)) -}}
{{- end -}}
{{ join "," $urls }}
{{- end }}

{{/* Environment of every program. */}}
{{- define "faregate.env" -}}
- {name: FAREGATE_INTERNAL_TOKEN_FILE, value: /secrets/internal-token}
- {name: FAREGATE_MODELS, value: /config/models.toml}
- {name: FAREGATE_LOG_FORMAT, value: json}
{{- if .Values.internalTlsSecret }}
- {name: FAREGATE_INTERNAL_TLS_CERT, value: /tls/tls.crt}
- {name: FAREGATE_INTERNAL_TLS_KEY, value: /tls/tls.key}
- {name: FAREGATE_INTERNAL_TLS_CA, value: /tls/ca.crt}
{{- end }}
{{- end }}

{{/* Environment of the program that uses the store. */}}
{{- define "faregate.envOfStore" -}}
- {name: FAREGATE_STORE_FILE, value: /secrets/store}
- {name: FAREGATE_PEPPER_FILE, value: /secrets/pepper}
{{- with .Values.publicUrl }}
- {name: FAREGATE_PUBLIC_URL, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{- define "faregate.volumes" -}}
- name: config
  configMap: {name: {{ .Release.Name }}-models}
{{- if .Values.internalTlsSecret }}
- name: tls
  secret: {secretName: {{ .Values.internalTlsSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "faregate.mounts" -}}
- {name: config, mountPath: /config, readOnly: true}
- {name: secrets, mountPath: /secrets, readOnly: true}
- {name: data, mountPath: /data}
{{- if .Values.internalTlsSecret }}
- {name: tls, mountPath: /tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "faregate.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{/* A pod with the least privileges. */}}
{{- define "faregate.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 999
  runAsGroup: 999
  fsGroup: 999
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
topologySpreadConstraints:
  {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "faregate.labels" $ | nindent 8 }}
  {{- end }}
{{- end }}

{{- define "faregate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

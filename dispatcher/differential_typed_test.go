package dispatcher_test

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// madeUp is the pointer of a field that no type knows, and known points to a field that every object has and no test uses.
const (
	madeUp = "/metadata/madeUp"
	known  = "/metadata/selfLink"
)

// typedChange is a patch of an object with a type, in whatever version the hook sees it.
func (s scripting) typedChange() act {
	kind := s.experiment.Request.GetKind().GetKind()
	if kind == "PodExecOptions" {
		return pick(s.chance, patches(`[{"op":"add","path":"/container","value":"main"}]`), patches(`[{"op":"add","path":"/command/-","value":"-x"}]`))
	}
	switch s.IntN(8) {
	case 0:
		return patches(`[{"op":"add","path":"/metadata/labels","value":{"env":%q}}]`, pick(s.chance, "dev", "prod"))
	case 1:
		return s.flip("metadata", "labels", "skip")
	case 2:
		return s.flip("metadata", "annotations", "seen")
	case 3:
		return s.countSeen()
	case 4:
		if s.in(4) {
			return patches(`[{"op":"add","path":%q,"value":%q}]`, madeUp, s.hook.Name)
		}
	}
	return patches("%s", pick(s.chance, changesOf(kind)...))
}

// changesOf are patches of objects of a kind that fit in every version.
func changesOf(kind string) []string {
	under := func(path string) []string {
		all := podChanges()
		for i := range all {
			all[i] = fmt.Sprintf(all[i], path)
		}
		return all
	}
	specs := map[string][]string{
		"Pod": append(under("/spec"), `[{"op":"add","path":"/spec/priority","value":7}]`),
		"Deployment": append(under("/spec/template/spec"), `[{"op":"add","path":"/spec/paused","value":true}]`, `[{"op":"add","path":"/spec/paused","value":false}]`,
			`[{"op":"add","path":"/spec/replicas","value":3}]`, `[{"op":"remove","path":"/spec/replicas"}]`, `[{"op":"remove","path":"/spec/strategy"}]`,
			`[{"op":"add","path":"/spec/strategy","value":{"type":"Recreate"}}]`, `[{"op":"add","path":"/spec/strategy","value":{"rollingUpdate":{"maxUnavailable":"10%"}}}]`,
			`[{"op":"add","path":"/spec/revisionHistoryLimit","value":3}]`, `[{"op":"add","path":"/spec/template/metadata/labels/by","value":"hook"}]`),
		"CronJob": append(under("/spec/jobTemplate/spec/template/spec"), `[{"op":"add","path":"/spec/suspend","value":true}]`, `[{"op":"remove","path":"/spec/concurrencyPolicy"}]`),
		"Scale":   {`[{"op":"add","path":"/spec/replicas","value":7}]`, `[{"op":"remove","path":"/spec/replicas"}]`, `[{"op":"add","path":"/spec","value":{}}]`},
		"HorizontalPodAutoscaler": {
			`[{"op":"add","path":"/spec/maxReplicas","value":9}]`, `[{"op":"add","path":"/spec/minReplicas","value":3}]`, `[{"op":"remove","path":"/spec/minReplicas"}]`,
			`[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`,
		},
		"ConfigMap": {`[{"op":"add","path":"/data/by","value":"hook"}]`, `[{"op":"add","path":"/binaryData","value":{"a":"AAEC"}}]`, `[{"op":"add","path":"/immutable","value":true}]`, `[{"op":"remove","path":"/data"}]`},
		"Service": {
			`[{"op":"add","path":"/spec/ports/-","value":{"name":"two","port":81}}]`, `[{"op":"add","path":"/spec/type","value":"NodePort"}]`, `[{"op":"remove","path":"/spec/type"}]`,
			`[{"op":"add","path":"/spec/ports/0/targetPort","value":"http"}]`,
		},
		"Namespace": {`[{"op":"add","path":"/spec/finalizers/-","value":"test.dev/hook"}]`, `[{"op":"add","path":"/spec","value":{}}]`},
		"Event":     {`[{"op":"add","path":"/reason","value":"Changed"}]`, `[{"op":"add","path":"/type","value":"Warning"}]`},
		"Ingress":   {`[{"op":"add","path":"/spec/rules/0/host","value":"y.test.dev"}]`, `[{"op":"add","path":"/spec/tls","value":[{"hosts":["x.test.dev"]}]}]`, `[{"op":"remove","path":"/spec/rules"}]`},
		"PodDisruptionBudget": {
			`[{"op":"add","path":"/spec/minAvailable","value":1}]`, `[{"op":"add","path":"/spec/selector","value":{}}]`, `[{"op":"add","path":"/spec/selector","value":null}]`,
			`[{"op":"add","path":"/spec/selector","value":{"matchLabels":{"app":"y"}}}]`,
		},
	}
	return append(specs[kind], `[{"op":"add","path":"/metadata/annotations","value":{}}]`, `[{"op":"add","path":"/metadata/ownerReferences","value":[]}]`,
		`[{"op":"add","path":"/metadata/finalizers","value":["test.dev/hook"]}]`, `[{"op":"add","path":"/metadata/creationTimestamp","value":"2024-01-02T03:04:05+02:00"}]`,
		`[{"op":"add","path":"/metadata/name","value":"y"}]`)
}

// podChanges are patches of the specification of a Pod, for which %s stands.
func podChanges() []string {
	return []string{
		`[{"op":"add","path":"%s/containers/-","value":{"name":"side","image":"side"}}]`, `[{"op":"add","path":"%s/containers/0/image","value":"main:2"}]`,
		`[{"op":"add","path":"%s/containers/0/ports","value":[{"containerPort":8080}]}]`, `[{"op":"add","path":"%s/containers/0/ports","value":[]}]`,
		`[{"op":"add","path":"%s/containers/0/env","value":[{"name":"A","value":"b"},{"name":"P","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}]`,
		`[{"op":"add","path":"%s/containers/0/livenessProbe","value":{"httpGet":{"port":80}}}]`, `[{"op":"add","path":"%s/containers/0/resources","value":{"requests":{"memory":"1000Mi","cpu":0.25}}}]`,
		`[{"op":"remove","path":"%s/containers/0/imagePullPolicy"}]`, `[{"op":"remove","path":"%s/dnsPolicy"}]`, `[{"op":"add","path":"%s/serviceAccount","value":"other"}]`,
		`[{"op":"add","path":"%s/serviceAccountName","value":"hook"}]`, `[{"op":"add","path":"%s/volumes","value":[{"name":"s","secret":{"secretName":"x"}}]}]`,
		`[{"op":"add","path":"%s/tolerations","value":[{"key":"a","operator":"Exists"}]}]`, `[{"op":"add","path":"%s/securityContext","value":{"runAsUser":1000}}]`,
		`[{"op":"add","path":"%s/hostNetwork","value":true}]`, `[{"op":"add","path":"%s/terminationGracePeriodSeconds","value":7}]`,
	}
}

// mistyped are patches whose result no type can hold.
func (s scripting) mistyped() []string {
	all := []string{
		`[{"op":"add","path":"/metadata/labels","value":{"env":7}}]`, `[{"op":"add","path":"/metadata/labels","value":"x"}]`, `[{"op":"replace","path":"/metadata","value":"x"}]`,
		`[{"op":"add","path":"/metadata/creationTimestamp","value":"yesterday"}]`, `[{"op":"add","path":"/metadata/generation","value":"one"}]`,
	}
	switch s.experiment.Request.GetKind().GetKind() {
	case "PodExecOptions":
		all = []string{`[{"op":"add","path":"/command","value":"sh"}]`, `[{"op":"add","path":"/stdin","value":1}]`}
	case "Event", "ConfigMap":
	default:
		all = append(all, `[{"op":"add","path":"/spec","value":[]}]`)
	}
	return slices.Repeat(all, 2)
}

// countSeen adds one to the number in an annotation.
func (s scripting) countSeen() act {
	return act{"counts in an annotation", func(o map[string]any) oracle.Answer {
		annotations, _, _ := unstructured.NestedMap(o, "metadata", "annotations")
		if annotations == nil {
			return oracle.Patch(`[{"op":"add","path":"/metadata/annotations","value":{"count":"1"}}]`)
		}
		text, _ := annotations["count"].(string)
		n, _ := strconv.Atoi(text)
		return oracle.Patch(`[{"op":"add","path":"/metadata/annotations/count","value":"%d"}]`, n+1)
	}}
}

package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
)

// BenchmarkTypedHosts compares the cost of one review for n hosts with typed handlers: each decodes JSON, or the mesh
// decodes the JSON once, encodes Kubernetes' protobuf, and each host decodes the protobuf.
func BenchmarkTypedHosts(b *testing.B) {
	for _, containers := range []int{3, 40} {
		raw := podJSON(b, containers)
		for _, hosts := range []int{1, 2, 8} {
			b.Run(fmt.Sprintf("%dB/hosts=%d/json", len(raw), hosts), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					for range hosts {
						if err := json.UnmarshalCaseSensitivePreserveInts(raw, &corev1.Pod{}); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
			b.Run(fmt.Sprintf("%dB/hosts=%d/protobuf", len(raw), hosts), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					var pod corev1.Pod
					if err := json.UnmarshalCaseSensitivePreserveInts(raw, &pod); err != nil {
						b.Fatal(err)
					}
					encoded, err := pod.Marshal()
					if err != nil {
						b.Fatal(err)
					}
					for range hosts {
						if err := (&corev1.Pod{}).Unmarshal(encoded); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// podJSON is a Pod as an API server writes it.
func podJSON(b *testing.B, containers int) []byte {
	b.Helper()
	const container = `{"name":"c%d","image":"registry.example.com/team/app:1.2.3","args":["--listen=:8080","--log-level=info"],` +
		`"ports":[{"containerPort":8080,"protocol":"TCP"}],"env":[{"name":"POD","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}],` +
		`"resources":{"limits":{"cpu":"500m","memory":"128Mi"},"requests":{"cpu":"100m","memory":"64Mi"}},` +
		`"securityContext":{"runAsUser":1000,"readOnlyRootFilesystem":true}}`
	var all []string
	for i := range containers {
		all = append(all, fmt.Sprintf(container, i))
	}
	return fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"web-","namespace":"shop","labels":{"app":"web"}},`+
		`"spec":{"containers":[%s],"serviceAccountName":"web","tolerations":[{"key":"a","operator":"Exists"}]}}`, strings.Join(all, ","))
}

package audit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

// BenchmarkAudit audits 50,000 Pods of about 4 KB in 200 namespaces by the policies of the library, over HTTP, and reports the largest heap.
func BenchmarkAudit(b *testing.B) {
	const count = 50_000
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("team-%03d", i))
	}
	padding := strings.Repeat("x", 2500)
	s := &apiServer{lists: map[string]objects{namespacesPath: namespaces(names...), podsPath: {count, func(i int) string {
		return fmt.Sprintf(`{"metadata":{"name":"web-%06d","namespace":%q,"uid":"u-%d","labels":{"app":"web","team":"t"},"annotations":{"note":%q},"managedFields":[
			{"manager":"kubectl","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:team":{}}}}}]},
			"spec":{"containers":[{"name":"a","image":"registry.example.com/web:1.%d","ports":[{"containerPort":8080}],"env":[{"name":"A","value":"b"}],
			"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"memory":"128Mi"}},"terminationMessagePath":"/dev/termination-log"}],
			"serviceAccountName":"default","restartPolicy":"Always"},"status":{"phase":"Running","podIP":"10.0.0.1"}}`,
			i, names[i*len(names)/count], i, padding, i%50)
	}}}}
	file := filepath.Join(b.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(s.start(b)), 0o600); err != nil {
		b.Fatal(err)
	}
	library, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "..", "policies", "*", "policy.yaml"))
	if err != nil || len(library) == 0 {
		b.Fatal("there is no library of policies: ", err)
	}
	for b.Loop() {
		stop, largest := make(chan struct{}), atomic.Uint64{}
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					largest.Store(max(largest.Load(), m.HeapInuse))
				}
			}
		}()
		cmd := NewCommand()
		cmd.SetOut(io.Discard)
		cmd.SetErr(os.Stderr)
		args := []string{"--kubeconfig", file, "--resource", "pods", "--rate", "1000", "-o", "json"}
		for _, file := range library {
			args = append(args, "--config", file)
		}
		cmd.SetArgs(args)
		if code := cli.Run(b.Context(), cmd); code == cli.ExitError {
			b.Fatal(code)
		}
		close(stop)
		b.ReportMetric(float64(largest.Load())/(1<<20), "MiB-heap")
		b.ReportMetric(count/b.Elapsed().Seconds()*float64(b.N), "objects/s")
	}
}

package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

// BenchmarkAudit audits 50,000 Pods of about 3 KB in 200 namespaces over HTTP, by policies of the library, and reports the largest heap and the time of
// processors, with the API server in the same process.
func BenchmarkAudit(b *testing.B) {
	b.Run("three", func(b *testing.B) { benchmark(b, "no-latest-tag", "required-labels", "pod-security-baseline") })
	b.Run("all", func(b *testing.B) { benchmark(b, "*") })
}

// benchmark audits by the policies in folders.
func benchmark(b *testing.B, folders ...string) {
	b.Helper()
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
	var library []string
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "..", "policies", folder, "policy.yaml"))
		if err != nil || len(found) == 0 {
			b.Fatalf("there is no %s in the library of policies: %v", folder, err)
		}
		library = append(library, found...)
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
		var out bytes.Buffer
		begun := processorTime(b)
		cmd := NewCommand()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetOut(&out)
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
		b.ReportMetric((processorTime(b) - begun).Seconds(), "cpu-s")
		var report struct {
			Policies []struct{} `json:"policies"`
		}
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(report.Policies)), "policies")
	}
}

// processorTime is the time of processors that this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

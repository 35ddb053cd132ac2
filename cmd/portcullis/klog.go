package main

import (
	"io"
	"os"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2" //nolint:depguard // client-go and k8s.io/apiserver log with it

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// klogLines and klogBurst bound the lines of Kubernetes' own code on standard error, a second and at once. A cluster causes one by each
// SubjectAccessReview that its API server refuses.
const (
	klogLines = 10
	klogBurst = 100
)

// redirectKlog has Kubernetes' own code log to standard error without secrets, and so many lines. The logger of a process has all that is our own.
func redirectKlog() {
	klog.LogToStderr(false)
	klog.SetOutput(sparseWriter{identity.RedactTo(os.Stderr), rate.NewLimiter(klogLines, klogBurst)})
}

// sparseWriter drops lines that come too fast.
type sparseWriter struct {
	io.Writer
	limit *rate.Limiter
}

// Write implements [io.Writer]. Klog writes a line at a time.
func (w sparseWriter) Write(line []byte) (int, error) {
	if !w.limit.Allow() {
		return len(line), nil
	}
	return w.Writer.Write(line)
}

package kube

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

const auditLogFile = "audit.log"

// auditPolicy records each request once, when it is complete.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: %s
`

// tracingConfiguration samples no request by itself: without a rate the
// decision is the client's (k8s.io/component-base/tracing, NewProvider).
const tracingConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: %q
`

func (c *Cluster) auditArgs(opts Options) ([]string, error) {
	if opts.AuditLevel == "" {
		return nil, nil
	}
	file, err := c.dir.write("audit-policy.yaml", fmt.Appendf(nil, auditPolicy, opts.AuditLevel))
	if err != nil {
		return nil, err
	}
	return []string{
		"--audit-policy-file=" + file,
		"--audit-log-path=" + c.dir.path(auditLogFile),
		"--audit-log-mode=blocking", // not batched: an event is written as soon as its request is complete
	}, nil
}

func (c *Cluster) tracingArgs(opts Options) ([]string, error) {
	if opts.TracingEndpoint == "" {
		return nil, nil
	}
	file, err := c.dir.write("tracing.yaml", fmt.Appendf(nil, tracingConfiguration, opts.TracingEndpoint))
	if err != nil {
		return nil, err
	}
	return []string{"--tracing-config-file=" + file}, nil
}

// exportSoon has kube-apiserver export spans after that many milliseconds,
// where five seconds are the default.
const exportSoon = "OTEL_BSP_SCHEDULE_DELAY=200"

// AuditEvents are the events in the audit log that match, oldest first. The
// cluster must have been started with an audit level. An event is written after
// its answer was sent, so a test polls for it.
func (c *Cluster) AuditEvents(match func(*auditv1.Event) bool) ([]auditv1.Event, error) {
	file, err := os.Open(c.dir.path(auditLogFile))
	if err != nil {
		return nil, fmt.Errorf("open the audit log (Options.AuditLevel turns it on): %w", err)
	}
	defer file.Close()
	var events []auditv1.Event
	decoder := json.NewDecoder(bufio.NewReader(file))
	for {
		var event auditv1.Event
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the last event may be half written
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if match(&event) {
			events = append(events, event)
		}
	}
}

package lint_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// capable is a Cluster with a capability; notAfter may be empty.
func capable(name, sum, notAfter string) string {
	return fmt.Sprintf("apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: %s}\nspec: {capabilities: [{name: c, sha256: %s, notAfter: %q}]}",
		name, strings.Repeat(sum, 32), notAfter)
}

func TestCapabilitiesThatExpire(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		notAfter time.Time
		want     []string
	}{
		"late":      {now.Add(lint.ExpiresSoon + time.Second), nil},
		"soon":      {now.Add(lint.ExpiresSoon), []string{`capability-expires: *Cluster "prod-1": spec.capabilities: capability "c" expires at 2027-01-15*new prod-1`}},
		"right now": {now, []string{`capability-expires: *capability "c" expires at`}},
		"over":      {now.Add(-time.Second), []string{`capability-expires: *capability "c" expired at 2026-12-31*remove it`}},
		"never":     {time.Time{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			notAfter := ""
			if !tt.notAfter.IsZero() {
				notAfter = tt.notAfter.Format(time.RFC3339)
			}
			objects, problems := configtest.Decode("", []byte(capable("prod-1", "aa", notAfter)))
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			snapshot, _ := config.Compile("1", objects)
			var got []string
			for _, p := range (lint.Options{Now: func() time.Time { return now }}).Inspect(t.Context(), snapshot, objects) {
				got = append(got, p.Code+": "+p.String())
			}
			expect(t, got, tt.want...)
		})
	}
	expect(t, found(t, capable("prod-1", "aa", "2001-01-01T00:00:00Z"))) // the time is not known
}

func TestCapabilitiesThatClustersShare(t *testing.T) {
	expect(t, found(t, capable("a", "aa", ""), capable("b", "bb", "")))
	expect(t, found(t, capable("a", "aa", ""), capable("b", "aa", "")),
		`capability-shared: *Cluster "b": spec.capabilities: capability "c" is one of cluster a too`)
}

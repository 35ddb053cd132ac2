package service

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// TestAnAuthorHasAShareOfHooksDocumentsAndBytes has an author write documents that match nothing, under many names.
func TestAnAuthorHasAShareOfHooksDocumentsAndBytes(t *testing.T) {
	object := func(name string, hooks, bytes int) config.Object {
		return config.Object{
			Key:        config.Key{Kind: "ValidatingWebhookConfiguration", Name: name},
			Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: make([]admissionregistrationv1.ValidatingWebhook, hooks)},
			Manifest:   make([]byte, bytes),
		}
	}
	author := access{identity: "author"}
	operator := access{identity: "root", roles: []*kinds.RoleSpec{{Role: kinds.RoleOperator}}}
	for name, tc := range map[string]struct {
		each          config.Object // that the author writes
		fit           int           // of them
		over, allOver string
	}{
		"hooks":     {object("", 4000, 10), 5, "24,000 hooks, and at most 16,000", "44,000 hooks, and at most 40,000"},
		"documents": {object("", 0, 10), 20_000, "20,001 documents, and at most 19,999", "40,001 documents, and at most 40,000"},
		"bytes": {object("", 0, 2<<20), 16, "35,651,584 bytes in their manifests, and at most 31,457,280",
			"69,206,016 bytes in their manifests, and at most 67,108,864"},
	} {
		t.Run(name, func(t *testing.T) {
			st := &storedState{state: &etcdstore.State{Records: map[config.Key]*etcdstore.Record{}}, objects: map[config.Key]config.Object{}}
			apply := func(by access, name string) error {
				o := tc.each
				o.Name = name
				if err := st.checkCost(&applyRequest{access: by, objects: []config.Object{o}}); err != nil {
					return err
				}
				st.objects[o.Key], st.state.Records[o.Key] = o, &etcdstore.Record{Actor: by.identity}
				return nil
			}
			fill := func(by access, prefix string, n int) {
				t.Helper()
				for i := range n - 1 { // without a check each, which counts all
					o := tc.each
					o.Name = fmt.Sprint(prefix, i)
					st.objects[o.Key], st.state.Records[o.Key] = o, &etcdstore.Record{Actor: by.identity}
				}
				if err := apply(by, fmt.Sprint(prefix, n)); err != nil {
					t.Error("the last that fits:", err)
				}
			}
			fill(author, "team-", tc.fit)
			if err := apply(author, "team-more"); err == nil || !strings.Contains(err.Error(), `the objects of "author" would have `+tc.over) {
				t.Error("one more:", err)
			}
			if err := apply(author, "team-0"); err != nil {
				t.Error("written again:", err)
			}
			fill(operator, "op-", tc.fit)
			if err := apply(operator, "op-more"); err == nil || !strings.Contains(err.Error(), "all objects together would have "+tc.allOver) {
				t.Error("all together:", err)
			}
		})
	}
}

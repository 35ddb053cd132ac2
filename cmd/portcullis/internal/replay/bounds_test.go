package replay

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestTheObjectsOfALogAreBounded(t *testing.T) {
	object := make([]byte, 1<<20) // all objects share it
	for name, of := range map[string]struct {
		object []byte
		name   string
		most   int
	}{
		"objects":        {[]byte("{}"), "", maxKept},
		"bytes":          {object, "", maxKeptBytes/len(object) - 1}, // names count too
		"bytes of names": {[]byte("{}"), strings.Repeat("n", 1<<20), maxKeptBytes>>20 - 1},
	} {
		h := &history{}
		key := func(n int) objectKey { return objectKey{name: fmt.Sprint(n), namespace: of.name} }
		for n := range of.most {
			h.put(key(n), of.object, false)
		}
		h.put(key(1), of.object, false) // a second write of an object takes no more
		if len(h.latest) != of.most || h.bytes > maxKeptBytes {
			t.Errorf("%s: %d objects of %d bytes, want %d", name, len(h.latest), h.bytes, of.most)
		}
		h.put(key(of.most), of.object, false)
		if len(h.latest) != 1 || h.get(key(of.most)) == nil {
			t.Errorf("%s: %d objects past the bound, want the last one", name, len(h.latest))
		}
		h.put(key(of.most), nil, true)
		if h.bytes != 0 || len(h.latest) != 0 {
			t.Errorf("%s: %d bytes of no object", name, h.bytes)
		}
	}
	h := &history{}
	if h.put(objectKey{name: "a"}, make([]byte, maxKeptBytes+1), false); len(h.latest) != 0 {
		t.Error("an object past the bound is kept")
	}
}

func TestAReportOfALogIsBounded(t *testing.T) {
	allowed := verdict{}
	denies := func(n int) verdict {
		policy := fmt.Sprint("ValidatingAdmissionPolicy/", n)
		return verdict{denied: true, matched: true, effects: map[string]string{policy: effectDenied}, reasons: map[string]string{policy: "no"}}
	}
	long := strings.Repeat("n", MaxNameBytes+1)
	c := newCollector()
	for n := range MaxChanges + 1 {
		if c.incomplete {
			t.Fatalf("incomplete after %d changes", n)
		}
		c.add(&Entry{}, &admissionv1.AdmissionRequest{Namespace: long, Cluster: long, UserInfo: &admissionv1.UserInfo{Username: long}}, allowed, denies(n), true)
	}
	r := c.report(&Log{})
	if len(r.Changes) != MaxChanges || !r.Incomplete {
		t.Errorf("%d changes, incomplete: %t", len(r.Changes), r.Incomplete)
	}
	if x := r.Changes[0]; x.Cluster != Others || x.Namespaces[0].Name != Others || x.Users[0].Name != Others {
		t.Error("names past the bound are kept")
	}

	c = newCollector()
	request := &admissionv1.AdmissionRequest{Object: &admissionv1.Object{Raw: make([]byte, 16<<20)}} // all requests share it
	for n := range 2 * MaxCases * (MaxCasesBytes / (16 << 20)) {
		c.add(&Entry{Line: n}, request, allowed, denies(n/(2*MaxCases)), true)
	}
	cases := 0
	for _, x := range c.report(&Log{}).Changes {
		cases += len(x.Cases)
	}
	if want := MaxCasesBytes/(16<<20) - 1; cases != want || !c.incomplete || c.bytes > MaxCasesBytes {
		t.Errorf("%d cases of %d bytes, want %d, incomplete: %t", cases, c.bytes, want, c.incomplete)
	}
}

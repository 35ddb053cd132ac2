package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube/initializers"
)

// counted is a service with one object, which counts turns and bytes. No method may be called in a turn: it could wait for the store.
type counted struct {
	answering

	t            *testing.T
	held         bool
	turns, bytes int
}

func (c *counted) Turn(context.Context) (done func(), err error) {
	if c.held {
		c.t.Error("a turn within a turn")
	}
	c.turns++
	c.held = true
	return func() { c.held = false }, nil
}

func (c *counted) Spend(_ context.Context, bytes int) error {
	c.outside()
	c.bytes += bytes
	return nil
}

func (c *counted) outside() {
	if c.held {
		c.t.Error("a method is called in a turn")
	}
}

func (c *counted) object() *initializerv1.StagedObject {
	c.outside()
	return &initializerv1.StagedObject{
		Key: &initializerv1.StagedKey{Cluster: "c", Name: "web", Namespace: "shop"}, ResourceVersion: "7", Object: &admissionv1.Object{Raw: []byte("{}")},
	}
}

func (c *counted) Get(context.Context, *initializerv1.GetRequest) (*initializerv1.GetResponse, error) {
	return &initializerv1.GetResponse{Object: c.object()}, nil
}

func (c *counted) List(context.Context, *initializerv1.ListRequest) (*initializerv1.ListResponse, error) {
	return &initializerv1.ListResponse{Objects: []*initializerv1.StagedObject{c.object(), c.object()}}, nil
}

func (c *counted) Update(context.Context, *initializerv1.UpdateRequest) (*initializerv1.UpdateResponse, error) {
	return &initializerv1.UpdateResponse{Object: c.object()}, nil
}

// TestJSONIsReadAndWrittenInTurnsOfItsCaller: and nothing else is done in them.
func TestJSONIsReadAndWrittenInTurnsOfItsCaller(t *testing.T) {
	const body, patch = `{"metadata":{"name":"web","resourceVersion":"7"}}`, `{"spec":{}}`
	resource, object := "/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/pods/web"
	for name, tc := range map[string]struct {
		method, path, media, body string
		turns, code               int
	}{
		"an object":                {http.MethodGet, object + "?includeUninitialized=true", "", "", 1, http.StatusOK},
		"each object of a list":    {http.MethodGet, resource + "?includeUninitialized=true", "", "", 2, http.StatusOK},
		"a body, and its answer":   {http.MethodPut, object, "application/json", body, 2, http.StatusOK},
		"a patch, and its answer":  {http.MethodPatch, object, "application/merge-patch+json", patch, 2, http.StatusOK},
		"a body that is too large": {http.MethodPut, object, "application/json", strings.Repeat(" ", 3<<20+1), 0, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			service := &counted{t: t}
			request := httptest.NewRequestWithContext(t.Context(), tc.method, initializers.Path("c")+tc.path, strings.NewReader(tc.body))
			request.Header.Set("Content-Type", tc.media)
			answer := httptest.NewRecorder()
			serving(t, service).ServeHTTP(answer, request)
			if answer.Code != tc.code || service.turns != tc.turns || service.held {
				t.Errorf("%d %s in %d turns, want %d in %d", answer.Code, answer.Body, service.turns, tc.code, tc.turns)
			}
			if want := min(len(tc.body), 3<<20); service.bytes != want {
				t.Errorf("%d bytes were counted, want %d", service.bytes, want)
			}
		})
	}
}

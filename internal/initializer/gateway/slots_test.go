package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer/gateway"
	"github.com/portcullis-mesh/portcullis/internal/initializer/service"
)

// heldStore is a store with the same objects for each list.
type heldStore struct {
	service.Store

	all []*initializerv1.StagedObject
}

func (s heldStore) List(context.Context) ([]*initializerv1.StagedObject, string, error) {
	return s.all, "7", nil
}

// unread is a caller that reads nothing of an answer until it is released.
type unread struct {
	*httptest.ResponseRecorder

	release <-chan struct{}
}

func (u *unread) Write(p []byte) (int, error) {
	<-u.release
	return u.ResponseRecorder.Write(p)
}

// TestAListHoldsItsPlaceUntilItIsWritten has an identity ask for lists that it does not read: it gets its share of the calls, others theirs.
func TestAListHoldsItsPlaceUntilItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store heldStore
		for i := range 3 {
			store.all = append(store.all, &initializerv1.StagedObject{
				Key: &initializerv1.StagedKey{
					Cluster: "prod-1", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "a", Name: fmt.Sprint("p", i),
				},
				Pending: []string{first}, Object: &admissionv1.Object{Raw: []byte(`{"metadata":{"name":"p"}}`)},
			})
		}
		access := service.Access{Reader: true}
		s, err := service.New(service.Options{
			Store: store, Grants: &grants{next: make(chan struct{}), of: map[string]service.Access{"one": access, "two": access}},
			Identity: func(ctx context.Context) identity.Peer { return identity.Named(ctx.Value(callerKey{}).(string)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		g, err := gateway.New(gateway.Options{
			Service: s,
			Identify: func(r *http.Request) (context.Context, func()) {
				return context.WithValue(r.Context(), callerKey{}, r.Header.Get("From")), func() {}
			},
			Caller: func(ctx context.Context) string { return ctx.Value(callerKey{}).(string) },
		})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		ask := func(who string) *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			request := httptest.NewRequest(http.MethodGet, "/v1/clusters/prod-1/staged/api/v1/pods?includeUninitialized=true", nil)
			request.Header.Set("From", who)
			go g.ServeHTTP(&unread{answer, release}, request)
			synctest.Wait()
			return answer
		}
		var answers []*httptest.ResponseRecorder
		for range service.MaxCalls / 2 {
			answers = append(answers, ask("one"))
		}
		over, other := ask("one"), ask("two")
		if over.Flushed || over.Body.Len() > 0 {
			t.Errorf("one list more is answered at once: %s", over.Body)
		}
		close(release)
		<-time.After(time.Second) // a refusal comes late
		synctest.Wait()
		if over.Code != http.StatusTooManyRequests || !strings.Contains(over.Body.String(), `too many calls of \"one\"`) {
			t.Errorf("one list more: %d %s", over.Code, over.Body)
		}
		for i, answer := range append(answers, other, ask("one")) {
			var got struct {
				Items []json.RawMessage `json:"items"`
			}
			if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Code != http.StatusOK || len(got.Items) != len(store.all) {
				t.Fatalf("list %d: %d, %d items, %v", i, answer.Code, len(got.Items), err)
			}
		}
	})
}

package console

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// configuration answers as a dispatcher without a store does.
type configuration struct {
	configv1.ConfigServiceClient // nil: other methods are not called

	err     error
	cluster string // manifest
}

func (c configuration) ListHooks(context.Context, *configv1.ListHooksRequest, ...grpc.CallOption) (*configv1.ListHooksResponse, error) {
	return &configv1.ListHooksResponse{DispatcherId: "d1", Hooks: []*configv1.Hook{{Stage: "validate"}}}, c.err
}

func (configuration) ListHosts(context.Context, *configv1.ListHostsRequest, ...grpc.CallOption) (*configv1.ListHostsResponse, error) {
	return &configv1.ListHostsResponse{DispatcherId: "d1"}, nil
}

func (configuration) ListDispatchers(
	context.Context, *configv1.ListDispatchersRequest, ...grpc.CallOption,
) (*configv1.ListDispatchersResponse, error) {
	return &configv1.ListDispatchersResponse{NoStore: true}, nil
}

func (c configuration) List(context.Context, *configv1.ListRequest, ...grpc.CallOption) (*configv1.ListResponse, error) {
	return &configv1.ListResponse{Objects: []*configv1.ConfigObject{{
		Key: &configv1.ConfigKey{Kind: "Cluster", Name: "prod"}, Manifest: &admissionv1.Object{Raw: []byte(c.cluster)},
	}}}, nil
}

// records has one call of one hook.
type records struct{}

func (records) ListLatencies(context.Context, *analysisv1.ListLatenciesRequest, ...grpc.CallOption) (*analysisv1.ListLatenciesResponse, error) {
	return &analysisv1.ListLatenciesResponse{Latencies: []*analysisv1.Latency{latencyAt(0, 1)}}, nil
}

func (records) ListReviews(_ context.Context, r *analysisv1.ListReviewsRequest, _ ...grpc.CallOption) (*analysisv1.ListReviewsResponse, error) {
	return &analysisv1.ListReviewsResponse{Reviews: []*analysisv1.Review{{Uid: r.GetId()}}, DispatcherId: "d1"}, nil
}

// ListShadows has two calls that would have been denied.
func (records) ListShadows(_ context.Context, r *analysisv1.ListShadowsRequest, _ ...grpc.CallOption) (*analysisv1.ListShadowsResponse, error) {
	counts := &analysisv1.ShadowCounts{Denied: 2}
	return &analysisv1.ListShadowsResponse{DispatcherId: "d1", Shadows: []*analysisv1.Shadow{{
		Cluster: "prod", Hook: &analysisv1.HookRef{Stage: "validate", Configuration: "c", Name: cmp.Or(r.GetHook(), "h")}, Counts: counts,
		Subjects: []*analysisv1.ShadowSubject{{Namespace: "shop", User: "jane", Counts: counts}},
	}}}, nil
}

// latencyAt is calls of hook h of a minute, which took about 20 us each.
func latencyAt(minute int64, calls uint32) *analysisv1.Latency {
	return &analysisv1.Latency{
		Cluster: "prod", Hook: &analysisv1.HookRef{Stage: "validate", Configuration: "c", Name: "h"},
		Minute: &timestamppb.Timestamp{Seconds: 60 * minute}, Calls: calls, Took: []uint32{0, calls},
	}
}

// held has one object that waits for an initializer, or an error.
type held struct {
	initializerv1.InitializerServiceClient // nil: other methods are not called

	err error
}

func (h held) List(context.Context, *initializerv1.ListRequest, ...grpc.CallOption) (*initializerv1.ListResponse, error) {
	return &initializerv1.ListResponse{Objects: []*initializerv1.StagedObject{{
		Key: &initializerv1.StagedKey{Cluster: "prod", Name: "web"}, Pending: []string{"sidecar.example.com"}, Object: &admissionv1.Object{Raw: []byte(`{"secret":1}`)},
	}}}, h.err
}

// TestWhatIsHeldIsShownWithoutItsContent: a mesh without a store holds nothing, and one whose store is away shows the rest.
func TestWhatIsHeldIsShownWithoutItsContent(t *testing.T) {
	for name, tc := range map[string]struct {
		err        error
		has, hides string
	}{
		"an object":                  {nil, `"pending":["sidecar.example.com"]`, "object"},
		"an older dispatcher":        {status.Error(codes.Unimplemented, "unknown service"), `"staged":null`, "not known"},
		"a dispatcher without store": {status.Error(codes.FailedPrecondition, "no store"), `"staged":null`, "not known"},
		"a store that is away":       {status.Error(codes.Unavailable, "etcd does not answer"), "initializers are not known: etcd does not answer", "pending"},
	} {
		r := &reader{mesh: meshOf(configuration{cluster: "{}"}, held{err: tc.err}), timeout: time.Minute}
		s, err := r.state(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string]any{"staged": s.Staged, "notes": s.Notes})
		if err != nil || !strings.Contains(string(text), tc.has) || strings.Contains(string(text), tc.hides) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}

func meshOf(c configuration, h held) mesh.Mesh {
	return mesh.Mesh{Clients: mesh.Clients{Config: c, Analysis: records{}, Initializers: h}, Notes: io.Discard}
}

func ask(c configuration, method, path, token string) *httptest.ResponseRecorder {
	r := &reader{mesh: meshOf(c, held{}), timeout: time.Minute}
	w := httptest.NewRecorder()
	request := httptest.NewRequest(method, path, http.NoBody)
	request.Header.Set("Authorization", "Bearer "+token)
	newHandler(r, "secret").ServeHTTP(w, request)
	return w
}

func TestTheHandlerGivesThePageToAllAndDataForTheToken(t *testing.T) {
	good := configuration{cluster: `{"spec":{"identities":["x"],"kubeconfig":"/secret","bypass":{"users":["jane"]}}}`}
	for name, c := range map[string]struct {
		mesh                configuration
		method, path, token string
		code                int
		has                 string
	}{
		"the page needs no token":          {good, "GET", "/", "", 200, "<title>Portcullis</title>"},
		"its modules are scripts":          {good, "GET", "/app.js", "", 200, "import"},
		"other files are not there":        {good, "GET", "/handler.go", "", 404, ""},
		"state without a token":            {good, "GET", "/data/state", "", 401, "open the address"},
		"state with the start of a token":  {good, "GET", "/data/state", "secre", 401, "open the address"},
		"reviews without a token":          {good, "GET", "/data/reviews", "", 401, "open the address"},
		"state":                            {good, "GET", "/data/state", "secret", 200, `"bypass":{"users":["jane"]}`},
		"a note that there is no store":    {good, "GET", "/data/state", "secret", 200, `there is no store`},
		"reviews":                          {good, "GET", "/data/reviews?id=u1", "secret", 200, `"uid":"u1"`},
		"hooks in shadow":                  {good, "GET", "/data/state", "secret", 200, `"wouldDeny":2,"wouldPatch":0,"failed":0,"dropped":0,"p50":"0s","p99":"0s","firstSeen":"1970-01-01T00:00:00Z","lastSeen":"1970-01-01T00:00:00Z","subjects":null,"cases":null`},
		"a hook in shadow":                 {good, "GET", "/data/shadows?hook=s", "secret", 200, `"name":"s",`},
		"its users":                        {good, "GET", "/data/shadows?hook=s", "secret", 200, `{"namespace":"shop","user":"jane",`},
		"its users without a token":        {good, "GET", "/data/shadows?hook=s", "", 401, "open the address"},
		"nothing can be sent":              {good, "POST", "/data/state", "secret", 405, ""},
		"the longest look back":            {good, "GET", "/data/state?since=1h", "secret", 200, `"hooks"`},
		"a longer one":                     {good, "GET", "/data/state?since=1h1s", "secret", 400, "at most 1h"},
		"a negative one":                   {good, "GET", "/data/reviews?since=-1s", "secret", 400, "at most 1h"},
		"a mesh that does not let us read": {configuration{err: status.Error(codes.PermissionDenied, "no role")}, "GET", "/data/state", "secret", 502, `"no role"`},
		"a cluster that cannot be read":    {configuration{cluster: "{"}, "GET", "/data/state", "secret", 200, "Cluster/prod cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(c.mesh, c.method, c.path, c.token)
			if got.Code != c.code || !strings.Contains(got.Body.String(), c.has) {
				t.Errorf("answer %d: %s", got.Code, got.Body)
			}
			if strings.Contains(got.Body.String(), "/secret") {
				t.Errorf("the answer has more of a cluster than is shown: %s", got.Body)
			}
			if p := got.Header().Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
				t.Errorf("Content-Security-Policy: %s", p)
			}
		})
	}
}

func TestRequestsPastTheLimitAreRefused(t *testing.T) {
	h := &handler{reader: &reader{timeout: time.Minute}, token: "secret", slots: make(chan struct{}, MaxRequests)}
	var codes []int
	var more func()
	more = func() {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Authorization", "Bearer secret")
		h.data(func(context.Context, *http.Request) (any, error) { more(); return "served", nil })(w, r)
		codes = append(codes, w.Code)
	}
	more() // each one is served while the one before is
	if len(codes) != MaxRequests+1 || codes[0] != http.StatusServiceUnavailable || codes[1] != http.StatusOK {
		t.Errorf("codes = %v, want %d served and one refused", codes, MaxRequests)
	}
}

func TestTimelinesAddTheCountsOfDispatchers(t *testing.T) {
	of := latencyAt(1, 9)
	of.Hook.Name = "" // of reviews
	got := timelines([]*analysisv1.Latency{latencyAt(2, 3), latencyAt(1, 1), of, latencyAt(2, 4)})
	data, _ := json.Marshal(got)
	const want = `[{"cluster":"prod","stage":"validate","configuration":"c","name":"h","points":[` +
		`{"minute":"1970-01-01T00:01:00Z","calls":1,"failed":0,"p50":0.02,"p99":0.02},` +
		`{"minute":"1970-01-01T00:02:00Z","calls":7,"failed":0,"p50":0.02,"p99":0.02}]}]`
	if string(data) != want {
		t.Errorf("timelines = %s", data)
	}
}

func TestTheCommandListensOnLoopbackAddressesOnly(t *testing.T) {
	for address, problem := range map[string]string{
		"0.0.0.0:0": "only a loopback address", ":8446": "only a loopback address", "10.0.0.1:80": "only a loopback address",
		"localhost:80": "only a loopback address", "127.0.0.1": "name an address and a port",
	} {
		got := clitest.Execute(t, NewCommand(), strings.NewReader(""), "--listen", address)
		if got.Code != cli.ExitError || !strings.Contains(got.Notes, problem) {
			t.Errorf("--listen %s: exit code %d, %s", address, got.Code, got.Notes)
		}
	}
	for _, address := range []string{DefaultListen, "[::1]:0", "127.9.9.9:80"} {
		if err := checkLoopback(address); err != nil {
			t.Error(err)
		}
	}
}

package adapt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	k8sv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
	"github.com/portcullis-mesh/portcullis/bridge/adapt/remote"
	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/oracle/replies"
)

// patience bounds every wait of the tests: it ends a hang, and is never the time that a test takes.
const patience = 30 * time.Second

// roads are the ways to a webhook through a host: its hooks have their names.
var roads = []string{"tcp", "unix", "https", "process"}

// comparison is a webhook, called by the mesh itself and through hosts.
type comparison struct {
	t      testing.TB
	client *outbound.Client
	server *httptest.Server // https
	hosts  map[hostedAs]*hosttest.Dispatcher

	mu    sync.Mutex
	reply replies.Reply
	uids  map[string]bool
	asked []byte // the last review, with its uid replaced
}

// hostedAs is the stage and version of the reviews of a host.
type hostedAs struct {
	stage   admissionv1.Stage
	version string
}

func newComparison(t testing.TB) *comparison {
	t.Helper()
	x := &comparison{t: t, hosts: map[hostedAs]*hosttest.Dispatcher{}, uids: map[string]bool{}}
	client, err := outbound.New(outbound.Options{RetryInterval: 1, Networks: outbound.Loopback()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := client.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	x.client = client
	x.server = quietServer(t, x, nil)
	x.server.StartTLS()
	plain := quietServer(t, x, nil)
	plain.Start()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	unix := quietServer(t, x, listener)
	unix.Start()
	addresses := map[string]string{
		"tcp": plain.URL + "/hook", "unix": "unix://" + socket + ":/hook", "https": x.server.URL + "/hook",
	}
	for _, stage := range []admissionv1.Stage{admissionv1.Stage_STAGE_VALIDATE, admissionv1.Stage_STAGE_MUTATE} {
		for _, version := range []string{"v1", "v1beta1"} {
			x.hosts[hostedAs{stage, version}] = x.host(t, stage, version, addresses)
		}
	}
	return x
}

func quietServer(t testing.TB, h http.Handler, listener net.Listener) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if listener != nil {
		_ = s.Listener.Close()
		s.Listener = listener
	}
	t.Cleanup(s.Close)
	return s
}

// host has a hook for each road.
func (x *comparison) host(t testing.TB, stage admissionv1.Stage, version string, addresses map[string]string) *hosttest.Dispatcher {
	t.Helper()
	hookOf := hostsdk.Validate
	if stage == admissionv1.Stage_STAGE_MUTATE {
		hookOf = hostsdk.Mutate
	}
	var hooks []hostsdk.Hook
	o := adapt.Options{ReviewVersions: []string{version}, RetryInterval: 1, Path: "/hook"}
	for road, address := range addresses {
		at, err := remote.ParseAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		w, err := remote.New(remote.Options{Address: at, MaxConnections: 4, TLS: clientTLS(x.server)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.CloseIdleConnections)
		hooks = append(hooks, hookOf(road, adapt.Forward(w, &at.URL, o)))
	}
	hooks = append(hooks, hookOf("process", adapt.Handler(x, o)))
	host, err := hostsdk.New(hostsdk.Options{Name: "adapted", Logger: slog.New(slog.DiscardHandler)}, hooks...)
	if err != nil {
		t.Fatal(err)
	}
	return hosttest.Start(t, host)
}

// ServeHTTP is the webhook.
func (x *comparison) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller is gone
	}
	var got struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		x.t.Errorf("the webhook was sent %s: %v", body, err)
	}
	x.mu.Lock()
	if x.uids[got.Request.UID] && x.reply.Header.Get("Retry-After") == "" {
		x.t.Errorf("the uid %q came twice", got.Request.UID)
	}
	x.uids[got.Request.UID] = true
	x.asked = bytes.Replace(body, []byte(got.Request.UID), []byte("UID"), 1)
	reply := x.reply
	x.mu.Unlock()
	if r.URL.Path != "/hook" || !strings.HasPrefix(r.URL.RawQuery, "timeout=") || r.Header.Get("Content-Type") != "application/json" {
		x.t.Errorf("asked at %s with %v", r.URL, r.Header)
	}
	reply.Write(w, got.Request.UID)
}

// begin sets the reply, and forgets the review before.
func (x *comparison) begin(r replies.Reply) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reply, x.asked = r, nil
}

func (x *comparison) lastAsked() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return string(x.asked)
}

// direct is the call that the mesh makes itself.
func (x *comparison) direct(as hostedAs, request *admissionv1.AdmissionRequest) review.Result {
	url := x.server.URL + "/hook"
	hook := &match.Hook{
		ID: match.HookID{Stage: as.stage, Configuration: "c", Name: "h"}, ReviewVersions: []string{as.version},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authorityOf(x.server)},
	}
	results := make(chan review.Result, 2)
	x.client.Start(x.t.Context(), &review.CallSet{
		Request: request, Calls: []review.Call{{Hook: hook, Deadline: time.Now().Add(patience)}},
	}, func(_ int, r review.Result) { results <- r })
	return <-results
}

func authorityOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// check compares the call of the mesh with those through each road. It returns how it ended.
func (x *comparison) check(as hostedAs, request *admissionv1.AdmissionRequest, r replies.Reply) string {
	x.t.Helper()
	x.begin(r)
	want := x.direct(as, request)
	asked := x.lastAsked()
	if want.Verdict != nil {
		want.Verdict.Uid = ""
	}
	for _, road := range roads {
		x.begin(r)
		ctx, cancel := context.WithTimeout(x.t.Context(), patience)
		got, err := x.hosts[as].Ask(ctx, road, request)
		cancel()
		if err != nil {
			x.t.Fatal(err)
		}
		if diff := cmp.Diff(want.Verdict, got.GetResponse(), protocmp.Transform()); diff != "" {
			x.t.Errorf("%s: %+v\nthe mesh: %v; the host: %v\n(-mesh +host):\n%s", road, r, want.Failure, got, diff)
		}
		if f := want.Failure; f != nil && failureDiffers(f, got) {
			x.t.Errorf("%s: %+v\nthe host failed with %v, the mesh with %s: %v", road, r, got, f.Kind, f)
		}
		if diff := cmp.Diff(asked, x.lastAsked()); diff != "" {
			x.t.Errorf("%s: the webhook was sent another review (-mesh +host):\n%s", road, diff)
		}
	}
	switch {
	case want.Failure != nil:
		return "failed"
	case want.Verdict.GetAllowed():
		return "allowed"
	}
	return "denied"
}

// failureDiffers compares failures. It ignores the texts of network failures, which have the address.
func failureDiffers(want *review.Failure, got *hostv1.Verdict) bool {
	if want.NotStarted {
		return got.GetRefused() == nil
	}
	if want.Kind == review.FailureLost {
		return got.GetError().GetMessage() == ""
	}
	return anyUID.ReplaceAllString(got.GetError().GetMessage(), "UID") != anyUID.ReplaceAllString(want.Error(), "UID")
}

// anyUID matches the uid of a call, also in the part of an answer that an error quotes.
var anyUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// TestAnAnswerMeansTheSameThroughAHost sends random replies to the mesh's own call, and to hosts before the same webhook.
func TestAnAnswerMeansTheSameThroughAHost(t *testing.T) {
	each := citest.Rounds(60, 300, 3000)
	x := newComparison(t)
	request := hosttest.Create(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}`)
	ended := map[string]int{}
	for as := range x.hosts {
		random := replies.Random{Rand: rand.New(rand.NewPCG(3, uint64(len(as.version))+uint64(as.stage)))}
		for range each {
			ended[x.check(as, request, random.Next(as.version))]++
			if t.Failed() {
				return
			}
		}
	}
	t.Log(ended)
	if ended["allowed"] < each/10 || ended["denied"] < each/10 || ended["failed"] < each/10 {
		t.Errorf("the test shows little: %v", ended)
	}
}

// TestTheReviewsOfTheCorpusPassThroughAHost: a webhook gets the same bytes, but for the uid, and its answer means the same.
func TestTheReviewsOfTheCorpusPassThroughAHost(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "corpus", "admissionreviews", "*"))
	if err != nil || len(files) == 0 {
		t.Skip("../shared/corpus is not here")
	}
	x := newComparison(t)
	random := replies.Random{Rand: rand.New(rand.NewPCG(4, 4))}
	passed := 0
	for _, file := range files {
		request := requestOf(t, file)
		if request == nil {
			continue
		}
		passed++
		for as := range x.hosts {
			x.check(as, request, random.Next(as.version))
			x.check(as, request, replies.Reply{Status: http.StatusOK, Body: allowance(as.version)})
			if t.Failed() {
				return
			}
			if !strings.Contains(x.lastAsked(), string(request.GetObject().GetRaw())) {
				t.Errorf("%s: the object is not as it came:\n%s", file, x.lastAsked())
			}
		}
	}
	if passed < 20 {
		t.Errorf("only %d reviews of %d files were sent", passed, len(files))
	}
}

func allowance(version string) string {
	return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/%s","response":{"uid":"%%UID%%","allowed":true}}`, version)
}

// requestOf is the request of a file; nil if it cannot be judged.
func requestOf(t *testing.T, file string) *admissionv1.AdmissionRequest {
	t.Helper()
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case strings.HasSuffix(file, ".yaml"):
		if body, err = yaml.YAMLToJSON(body); err != nil {
			t.Fatal(err)
		}
	case strings.HasSuffix(file, ".request.json"):
		body = fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":%q,"request":%s}`, k8sv1.SchemeGroupVersion, body)
	}
	decoded, err := conversion.DecodeReview(body)
	if err != nil {
		return nil
	}
	request, _ := proto.Clone(decoded.GetRequest()).(*admissionv1.AdmissionRequest)
	return request
}

package review

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

func TestReviewOutput(t *testing.T) {
	tests := map[string]struct {
		golden string
		args   []string
		code   int
	}{
		"both stages, as text":                         {golden: "review.txt", code: cli.ExitDenied},
		"with the hooks that were not called":          {golden: "review-explain.txt", args: []string{"--explain"}, code: cli.ExitDenied},
		"one stage alone, allowed":                     {golden: "review-mutate.txt", args: []string{"--stage", "mutate"}},
		"as JSON, which says the same":                 {golden: "review.json", args: []string{"-o", "json"}, code: cli.ExitDenied},
		"as JSON, with the hooks that were not called": {golden: "review-explain.json", args: []string{"-o", "json", "--explain"}, code: cli.ExitDenied},
	}
	mesh := clitest.StartMesh(t, clitest.Sample).File(t)
	t.Setenv("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review), append([]string{"-f", "-", "--ready-file", mesh}, tt.args...)...)
			if r.Code != tt.code || r.Notes != "" {
				t.Errorf("exit code %d, want %d: %s", r.Code, tt.code, r.Notes)
			}
			clitest.Golden(t, tt.golden, r.Out)
		})
	}
}

func TestEachReviewHasATraceOfItsOwn(t *testing.T) {
	for name, variables := range map[string]map[string]string{
		"without a collector":                 nil,
		"with another trace that is none":     {"TRACEPARENT": "none"},
		"with a sampler that samples nothing": {"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "always_off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TRACEPARENT", "")
			for variable, value := range variables {
				t.Setenv(variable, value)
			}
			mesh, seen := clitest.StartMesh(t, clitest.Sample).File(t), map[string]bool{}
			for range 2 {
				r := clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review), "-f", "-", "--ready-file", mesh)
				_, id, _ := strings.Cut(r.Out, "\ntrace: ")
				if _, err := trace.TraceIDFromHex(strings.TrimSpace(id)); err != nil || seen[id] {
					t.Errorf("trace %q (%v), before %v", id, err, seen)
				}
				seen[id] = true
			}
		})
	}
}

func TestReviewTellsTheOutcomesApart(t *testing.T) {
	const message = "failed calling webhook \"images.example.com\": unavailable: no host serves the hook"
	for name, tt := range map[string]struct {
		answer *admissionv1.ReviewResponse
		err    error
		want   string
		code   int
	}{
		"a hook denies": {
			&admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Code: 403}}}, nil,
			"validate: denied (403 Forbidden)\n", cli.ExitDenied,
		},
		"a hook denies and gives a reason": {
			&admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Code: 403, Reason: "Forbidden"}}}, nil,
			"validate: denied (403 Forbidden)\n", cli.ExitDenied,
		},
		"a hook denies with a code that HTTP has no text for": {
			&admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Code: 499}}}, nil,
			"validate: denied (499)\n", cli.ExitDenied,
		},
		"a hook gives no verdict": {
			&admissionv1.ReviewResponse{Failed: true, Response: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{
				Code: 500, Reason: "InternalError", Message: message,
			}}}, nil,
			"validate: failed (500 Internal Server Error)\n  " + message + "\n", cli.ExitError,
		},
		"a hook gives no verdict, and the review goes on": {
			&admissionv1.ReviewResponse{Outcome: "failed-open", Response: &admissionv1.AdmissionResponse{Allowed: true}}, nil,
			"validate: failed-open\n", 0,
		},
		"the mesh refuses the document": {
			&admissionv1.ReviewResponse{Outcome: "refused", Response: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Code: 413}}}, nil,
			"validate: refused (413 Request Entity Too Large)\n", cli.ExitError,
		},
		"the mesh refuses the caller": {
			nil, status.Error(codes.PermissionDenied, `portcullis: identity "x" may not send reviews for cluster "dev": add it`),
			"validate: refused\n  identity \"x\" may not send reviews for cluster \"dev\": add it\n", cli.ExitError,
		},
		"nobody answers": {nil, status.Error(codes.Unavailable, "connection refused"), "", cli.ExitError},
	} {
		t.Run(name, func(t *testing.T) {
			span := exportedSpan(t)
			mesh := clitest.StartMesh(t, func(*admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) { return tt.answer, tt.err })
			r := clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review), "-f", "-", "--ready-file", mesh.File(t), "--stage", "validate")
			if r.Code != tt.code || (r.Notes != "") != (tt.want == "") || !strings.HasPrefix(r.Out, tt.want) {
				t.Errorf("exit code %d, want %d; printed %q, want %q in front: %s", r.Code, tt.code, r.Out, tt.want, r.Notes)
			}
			got := span().GetStatus()
			if failed := got.GetCode() == tracev1.Status_STATUS_CODE_ERROR; failed != (tt.code == cli.ExitError) || failed != (got.GetMessage() != "") ||
				!strings.Contains(r.Out+r.Notes, got.GetMessage()) {
				t.Errorf("the span has status %v with exit code %d", got, tt.code)
			}
			attributes := map[string]string{}
			for _, a := range span().GetAttributes() {
				attributes[a.GetKey()] = a.GetValue().GetStringValue()
			}
			if diff := gocmp.Diff(map[string]string{"k8s.cluster.name": "dev", "portcullis.uid": "u1"}, attributes); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

// exportedSpan has a command export its span, and returns a function that returns this span.
func exportedSpan(t *testing.T) func() *tracev1.Span {
	t.Helper()
	var received collectorv1.ExportTraceServiceRequest
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || proto.Unmarshal(body, &received) != nil {
			t.Errorf("%s: not OTLP: %v", r.URL, err)
		}
	}))
	t.Cleanup(receiver.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	return func() *tracev1.Span {
		if len(received.GetResourceSpans()) == 0 {
			return nil
		}
		return received.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0]
	}
}

func TestReviewAsksAsAnAPIServerDoes(t *testing.T) {
	var asked []string
	mesh := clitest.StartMesh(t, func(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		asked = append(asked, strings.Join([]string{
			r.GetStage().String(), r.GetRequest().GetCluster(), r.GetRequest().GetUid(), string(r.GetRequest().GetObject().GetRaw()),
		}, " "))
		answer := &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Uid: "u1", Allowed: true}}
		if r.GetStage() == admissionv1.Stage_STAGE_MUTATE {
			answer.Response.Patch, answer.Response.PatchType = []byte(`[{"op":"replace","path":"/metadata/name","value":"db"}]`), "JSONPatch"
		}
		return answer, nil
	})
	r := clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review), "-f", "-", "--cluster", "prod-1",
		"--server", "https://"+mesh.Hosts, "--ca", mesh.CA, "--cert", mesh.ClientCert, "--key", mesh.ClientKey)
	if r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	want := []string{
		`STAGE_MUTATE prod-1 u1 {"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"n":1.0}}`,
		`STAGE_VALIDATE prod-1 u1 {"apiVersion":"v1","kind":"Pod","metadata":{"name":"db"},"spec":{"n":1.0}}`,
	}
	if diff := gocmp.Diff(want, asked); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
}

func TestReviewOfAllStagesIsAskedOnce(t *testing.T) {
	var asked []admissionv1.Stage
	mesh := clitest.StartMesh(t, func(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		asked = append(asked, r.GetStage())
		return clitest.Sample(r)
	})
	r := clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review), "-f", "-", "--ready-file", mesh.File(t), "--stage", "admit")
	if r.Code != cli.ExitDenied || !strings.Contains(r.Out, "admit") {
		t.Errorf("%+v", r)
	}
	if diff := gocmp.Diff([]admissionv1.Stage{admissionv1.Stage_STAGE_ADMIT}, asked); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
}

func TestReviewFindsTheMeshByAVariable(t *testing.T) {
	t.Setenv("PORTCULLIS_READY_FILE", clitest.StartMesh(t, clitest.Sample).File(t))
	if r := clitest.Execute(t, NewCommand(), nil, "-f", clitest.Write(t, "pod.json", clitest.Review), "--stage", "mutate"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
}

func TestReviewSaysWhatToDoWhenThereIsNoVerdict(t *testing.T) {
	fails := func(code codes.Code, message string) clitest.Judge {
		return func(*admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
			return nil, status.Error(code, message)
		}
	}
	badPatch := func(*admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		return &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"remove","path":"/x"}]`)}}, nil
	}
	tests := map[string]struct {
		judge  clitest.Judge
		change func(t *testing.T, i *clitest.MeshFiles)
		args   []string
		want   string
	}{
		"nobody listens there": {
			judge:  clitest.Sample,
			change: func(t *testing.T, i *clitest.MeshFiles) { i.Hosts = closedPort(t) },
			want:   "check that it runs",
		},
		"the certificate is of another authority": {
			judge: clitest.Sample,
			change: func(t *testing.T, i *clitest.MeshFiles) {
				other := clitest.StartMesh(t, clitest.Sample)
				i.ClientCert, i.ClientKey = other.ClientCert, other.ClientKey
			},
			want: `client.crt (identity "kube-apiserver", issued by "test")`,
		},
		"the mesh's certificate is of another authority": {
			judge:  clitest.Sample,
			change: func(t *testing.T, i *clitest.MeshFiles) { i.CA = clitest.StartMesh(t, clitest.Sample).CA },
			want:   "this client does not trust the server",
		},
		"it is another gRPC server": {want: "name the listener for hosts"},
		"nothing comes in time": {
			judge: fails(codes.DeadlineExceeded, "slow"), args: []string{"--timeout", "3s"}, want: "no answer within 3s",
		},
		"the patch of the answer does not apply": {judge: badPatch, want: "mutate: the answer's patch"},
		"the certificate is not named": {
			judge:  clitest.Sample,
			change: func(_ *testing.T, i *clitest.MeshFiles) { i.ClientCert, i.ClientKey = "", "" },
			want:   "--cert and --key are missing",
		},
		"the authority is not named": {
			judge: clitest.Sample, change: func(_ *testing.T, i *clitest.MeshFiles) { i.CA = "" }, want: "--ca is missing",
		},
		"the certificate is not there": {
			judge: clitest.Sample, change: func(_ *testing.T, i *clitest.MeshFiles) { i.ClientCert = "/nowhere.crt" }, want: "/nowhere.crt",
		},
		"the address has no port": {
			judge: clitest.Sample, change: func(_ *testing.T, i *clitest.MeshFiles) { i.Hosts = "mesh" }, want: "name host and port",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			info := clitest.StartMesh(t, tt.judge)
			if tt.change != nil {
				tt.change(t, &info)
			}
			clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review),
				append([]string{"-f", "-", "--ready-file", info.File(t)}, tt.args...)...).Fails(t, tt.want)
		})
	}
}

// closedPort is an address that nobody listens at.
func closedPort(t *testing.T) string {
	t.Helper()
	address, err := citest.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestReviewSaysWhichFlagIsMissing(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"the file":              {nil, "name the files with the objects or reviews"},
		"the mesh":              {[]string{"-f", "-"}, "say which mesh"},
		"a file that is there":  {[]string{"-f", "/nowhere.json"}, "/nowhere.json"},
		"a ready file that is":  {[]string{"-f", "-", "--ready-file", "/nowhere.json"}, "is the mesh running"},
		"a ready file of JSON":  {[]string{"-f", "-", "--ready-file", clitest.Write(t, "f", "{")}, "ready file"},
		"a ready file of ours":  {[]string{"-f", "-", "--ready-file", clitest.Write(t, "f", "{}")}, "names no listener for hosts"},
		"time":                  {[]string{"-f", "-", "--timeout", "0s"}, "--timeout"},
		"an operation":          {[]string{"-f", clitest.Write(t, "f", `{"uid":"u","kind":{"kind":"Pod"},"operation":"MAKE"}`)}, "CREATE, UPDATE, DELETE, CONNECT"},
		"a resource":            {[]string{"-f", clitest.Write(t, "f", `{"uid":"u","kind":{"kind":"Pod"},"operation":"CREATE"}`)}, "names no resource"},
		"a stage that there is": {[]string{"-f", "-", "--stage", "all"}, "use mutate or validate or admit"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review), tt.args...).Fails(t, tt.want)
		})
	}
}

// requestsIn are the requests of standard input, or the error of the first document without one.
func requestsIn(from io.Reader, by client) (requests []*admissionv1.AdmissionRequest, err error) {
	by.mesh, _ = offline.New(nil)
	in := &input{standard: from, by: &by}
	err = in.read(context.Background(), "-")
	for i := range in.documents {
		requests, err = append(requests, in.documents[i].request), cmp.Or(err, in.documents[i].err)
	}
	return requests, err
}

func TestReadReview(t *testing.T) {
	object := `{"b":1.0,"a":"<"}`
	tests := map[string]struct {
		document string
		object   string
		want     string // of the error; empty when the document is read
	}{
		"a review": {
			document: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1","object":` + object + `}}`, object: object,
		},
		"a review of v1beta1": {
			document: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u1","object":` + object + `}}`, object: object,
		},
		"a bare request": {
			document: `{"uid":"u1","kind":{"group":"","version":"v1","kind":"Pod"},"operation":"CREATE","object":` + object + `}`, object: object,
		},
		"a request without uid, which is given one": {
			document: `{"kind":{"version":"v1","kind":"Pod"},"operation":"CREATE","object":` + object + `}`, object: object,
		},
		"a review without uid": {
			document: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"object":` + object + `}}`, object: object,
		},
		"YAML": {
			document: "# a comment\n---\nkind: AdmissionReview\napiVersion: admission.k8s.io/v1\nrequest:\n  uid: u1\n  object: {a: 1}\n", object: `{"a":1}`,
		},
		"a bare request in YAML": {
			document: "uid: u1\nkind: {version: v1, kind: Pod}\noperation: CREATE\nobject: {a: 1}\n", object: `{"a":1}`,
		},
		"an object without a version":      {document: "kind: Pod\n", want: "no apiVersion"},
		"an empty file is no document":     {document: "# nothing\n", want: "no document"},
		"neither JSON nor YAML":            {document: "a: b: c", want: "not valid YAML"},
		"a list is no review":              {document: "- a\n", want: "must be a mapping"},
		"broken JSON":                      {document: `{"kind":`, want: "not valid YAML"},
		"a version that is not read":       {document: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2","request":{"uid":"u"}}`, want: "is not supported"},
		"a review without a request":       {document: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, want: "has no request"},
		"a file past the limit is refused": {document: "{" + strings.Repeat(" ", maxFileBytes), want: "larger than"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			requests, err := requestsIn(strings.NewReader(tt.document), client{})
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q in it", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if request := requests[0]; len(requests) != 1 || request.GetUid() == "" || string(request.GetObject().GetRaw()) != tt.object {
				t.Errorf("uid %q, object %s, want %s", request.GetUid(), request.GetObject().GetRaw(), tt.object)
			}
		})
	}
}

func TestReadReviewOfTheCorpus(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "..", "..", "shared", "corpus", "admissionreviews", "*"))
	if err != nil || len(files) == 0 {
		t.Skip("the corpus of real documents is not here")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			requests, err := requestsIn(f, client{})
			if err != nil || len(requests) != 1 {
				t.Fatal(requests, err)
			}
			if request := requests[0]; request.GetUid() == "" || request.GetOperation() == "" {
				t.Errorf("read as %v", request)
			}
		})
	}
}

func TestAFileThatIsNotThereIsNamed(t *testing.T) {
	clitest.Execute(t, NewCommand(), nil, "-f", "/none.yaml").Fails(t, "-f: there is no /none.yaml: name a file that is there, or - for")
}

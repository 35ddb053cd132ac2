package clitest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// Review is a review of a Pod.
const Review = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",` +
	`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
	`"name":"web","namespace":"default","operation":"CREATE","userInfo":{"username":"jane"},` +
	`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"n":1.0}}}}`

// Judge is a mesh of one function.
type Judge func(*admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error)

type judgeService struct {
	admissionv1.UnimplementedAdmissionServiceServer
	judge Judge
}

func (s judgeService) Review(_ context.Context, r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
	return s.judge(r)
}

// MeshFiles is the content of the ready file of a mesh.
type MeshFiles struct {
	Hosts      string `json:"hosts"`
	CA         string `json:"ca"`
	ClientCert string `json:"clientCert"`
	ClientKey  string `json:"clientKey"`
}

// StartMesh serves a judge over mutual TLS and returns the content of its ready file. Without a judge it serves nothing.
func StartMesh(t *testing.T, j Judge) MeshFiles {
	t.Helper()
	return ServeMesh(t, func(s grpc.ServiceRegistrar) {
		if j != nil {
			admissionv1.RegisterAdmissionServiceServer(s, judgeService{judge: j})
		}
	})
}

// ServeMesh is StartMesh for services other than a judge.
func ServeMesh(t *testing.T, register func(grpc.ServiceRegistrar)) MeshFiles {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	ca, err := certs.NewAuthority("test", 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]certs.Spec{
		"server": {IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true},
		"client": {Identity: "kube-apiserver", Client: true},
	} {
		pair, err := ca.Issue(spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(at(name+".crt"), at(name+".key")); err != nil {
			t.Fatal(err)
		}
	}
	if err := ca.CA().WriteCert(at("ca.crt")); err != nil {
		t.Fatal(err)
	}
	files, err := certs.OpenReloader(certs.ReloaderOptions{CertFile: at("server.crt"), KeyFile: at("server.key"), CAFile: at("ca.crt")})
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(files.ServerTLS(tls.VersionTLS13, tls.RequireAndVerifyClientCert, "h2"))))
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return MeshFiles{Hosts: listener.Addr().String(), CA: at("ca.crt"), ClientCert: at("client.crt"), ClientKey: at("client.key")}
}

// Sample answers as a mesh with one hook of each stage and another that is not called.
func Sample(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
	answer := &admissionv1.ReviewResponse{Revision: "rev-1", Response: &admissionv1.AdmissionResponse{Uid: r.GetRequest().GetUid(), Allowed: true}}
	if r.GetRequest().GetDryRun() { // the second time
		answer.Outcomes = []*admissionv1.HookOutcome{{Configuration: "labels", Hook: "label.example.com", Outcome: "patched"}}
		return answer, nil
	}
	if r.GetStage() == admissionv1.Stage_STAGE_MUTATE {
		answer.Response.Patch = []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"<b>"}},` +
			`{"op":"copy","from":"/metadata/name","path":"/metadata/labels/n"}]`)
		answer.Response.PatchType = "JSONPatch"
		answer.Response.Warnings = []string{"hook \"slow.example.com\" failed (timeout) and was skipped: its failure policy is Ignore"}
		answer.Response.AuditAnnotations = map[string]string{"failed-open.slow.example.com": "timeout", "a": "b"}
		answer.Outcomes = []*admissionv1.HookOutcome{
			{Configuration: "sidecars", Hook: "sidecar.example.com", Stage: "initialize", Outcome: "allowed", QueuedUs: 900, HostUs: 20000},
			{Configuration: "labels", Hook: "label.example.com", Outcome: "patched", QueuedUs: 12, WireUs: 1500, HostUs: 230, Instance: "host-1"},
			{Configuration: "labels", Hook: "slow.example.com", Outcome: "failed-open", Reason: "no verdict within 250ms", QueuedUs: 3},
			{Configuration: "labels", Hook: "label.example.com", Round: 1, Outcome: "allowed", WireUs: 900, HostUs: 100, Instance: "host-1"},
			{Configuration: "other", Hook: "other.example.com", Outcome: "skipped", Reason: "no rule covers CREATE of pods"},
		}
		return answer, nil
	}
	answer.Response.Allowed = false
	answer.Response.Status = &admissionv1.Status{
		Code: 403, Reason: "Forbidden", Message: "hook \"images.example.com\" denied the request: image \"nginx\" is not pinned\nsee https://example.com",
		Details: &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{
			{Field: "spec.containers[0].image", Message: "not pinned"}, {Reason: "FieldValueInvalid"},
		}},
	}
	answer.Outcomes = []*admissionv1.HookOutcome{
		{
			Configuration: "images", Hook: "images.example.com", Outcome: "denied", WireUs: 1200, HostUs: 80, Instance: "host-2",
			Reason: "image \"nginx\" is not pinned\nsee \x1b[1mhttps://example.com",
		},
		{Configuration: "other", Hook: "other.example.com", Outcome: "skipped", Reason: "namespaceSelector \"env=prod\" does not match"},
	}
	return answer, nil
}

// File writes the ready file and returns its name.
func (f MeshFiles) File(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return Write(t, "ready.json", string(data))
}

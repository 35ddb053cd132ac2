// Package python_test runs the Python host against a dispatcher written in Go.
package python_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

const root = "../.."

// hooksForTests are hooks that the tests add to the example: handlers that wait, and a handler that breaks.
const hooksForTests = `
import sys
sys.path.insert(0, sys.argv.pop(1))
import host

def wait(request, cancelled):
    cancelled.wait()
    raise RuntimeError("cancelled")

def breaks(request, cancelled):
    raise RuntimeError("password is hunter2")

host.HOOKS[("wait.example.com", host.admission.STAGE_VALIDATE)] = wait
host.HOOKS[("breaks.example.com", host.admission.STAGE_VALIDATE)] = breaks
host.main()
`

// stubs are the arguments of protoc.
var stubs = []string{"portcullis/admission/v1/admission.proto", "portcullis/host/v1/host.proto"}

func TestPythonHost(t *testing.T) {
	citest.Gate(t, "gets Python libraries, and runs a host in Python: 40 s")
	python, generated := prepare(t)
	files, security := certificates(t)
	address, err := citest.FreeAddress() // It is listened at twice.
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, address, security)
	process := start(t, python, "PYTHONPATH="+generated, append([]string{l.Addr, "--tls"}, files...)...)
	session := accept(t, l)

	t.Run("A validating hook decides.", func(t *testing.T) {
		v := ask(t, session, "pinned-images.example.com", `{"kind":"Pod","spec":{"containers":[{"image":"a:1"}]}}`)
		if !v.GetResponse().GetAllowed() {
			t.Errorf("verdict %v", v)
		}
		v = ask(t, session, "pinned-images.example.com", `{"kind":"Pod","spec":{"containers":[{"image":"a:latest"}]}}`)
		status := v.GetResponse().GetStatus()
		if v.GetResponse().GetAllowed() || status.GetCode() != 403 || status.GetMessage() != "image a:latest is not pinned" {
			t.Errorf("verdict %v", v)
		}
	})
	t.Run("A mutating hook patches what it was sent.", func(t *testing.T) {
		for object, want := range map[string]string{
			`{"kind":"Pod","metadata":{"namespace":"shop"}}`:                    `{"team":"team-of-shop"}`,
			`{"kind":"Pod","metadata":{"namespace":"shop","labels":{"a":"b"}}}`: `{"a":"b","team":"team-of-shop"}`,
		} {
			response := ask(t, session, "team-label.example.com", object).GetResponse()
			if !response.GetAllowed() || response.GetPatchType() != "JSONPatch" {
				t.Fatalf("response %v", response)
			}
			if changed := apply(t, object, response.GetPatch()); !strings.Contains(changed, `"labels":`+want) {
				t.Errorf("%s became %s", object, changed)
			}
		}
	})
	t.Run("One review asks several hooks, and each gets its verdict.", func(t *testing.T) { askSeveral(t, session) })
	t.Run("Only an authored text leaves the process.", func(t *testing.T) {
		if v := ask(t, session, "breaks.example.com", `{}`); v.GetError().GetMessage() != "handler failed" {
			t.Errorf("verdict %v", v)
		}
	})
	t.Run("A call ends with its time.", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience/20)
		defer cancel()
		v, err := session.Ask(ctx, "wait.example.com", hosttest.Create(`{}`))
		if err != nil || v.GetCancelled() == nil {
			t.Errorf("verdict %v, %v", v, err)
		}
	})
	t.Run("Frames from the future are ignored.", func(t *testing.T) {
		if err := session.Send(&hostv1.ConnectResponse{}); err != nil {
			t.Fatal(err)
		}
		if err := session.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("A probe is answered.", func(t *testing.T) {
		for hook, want := range map[string]bool{"team-label.example.com": true, "none.example.com": false} {
			if result, err := session.Probe(t.Context(), hook); err != nil || result.GetReady() != want {
				t.Errorf("%s: %v, %v", hook, result, err)
			}
		}
	})
	t.Run("A large review is taken.", func(t *testing.T) {
		object := `{"kind":"Pod","metadata":{"annotations":{"a":"` + strings.Repeat("x", 6<<20) + `"}}}`
		if v := ask(t, session, "pinned-images.example.com", object); !v.GetResponse().GetAllowed() {
			t.Errorf("verdict %v", v)
		}
	})
	t.Run("A lost session is dialled again.", func(t *testing.T) {
		l.Stop()
		again := accept(t, listen(t, l.Addr, security))
		if again.Hello().GetInstance() != session.Hello().GetInstance() {
			t.Error("the instance changed within one process")
		}
		drain(t, again, process)
	})
}

// askSeveral sends one review for hooks that are known, unknown, and of the wrong stage.
func askSeveral(t *testing.T, session *hosttest.Session) {
	t.Helper()
	call, err := session.Post(hosttest.Create(`{"kind":"Pod"}`),
		&hostv1.HookCall{Name: "pinned-images.example.com", Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 10_000},
		&hostv1.HookCall{Name: "none.example.com", Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 10_000},
		&hostv1.HookCall{Name: "pinned-images.example.com", Stage: admissionv1.Stage_STAGE_MUTATE, RemainingMs: 10_000},
		&hostv1.HookCall{Name: "pinned-images.example.com", Stage: admissionv1.Stage_STAGE_VALIDATE},
	)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, err := call.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range verdicts {
		got = append(got, v.GetRefused().GetReason())
	}
	if diff := cmp.Diff([]string{"", "unknown hook", "unknown hook", "no time left"}, got); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}

// drain ends the process while a call is running, and looks at how it leaves.
func drain(t *testing.T, session *hosttest.Session, process *process) {
	t.Helper()
	inFlight, err := session.Post(hosttest.Create(`{}`), &hostv1.HookCall{
		Name: "wait.example.com", Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 60_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	// Handlers that wait do not hold up a sign of life; and after it the call before has been read.
	if err := session.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := process.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if farewell, err := session.Drained(t.Context()); err != nil || farewell.GetLastStartedCallId() == 0 {
		t.Errorf("drain %v, %v", farewell, err)
	}
	v := ask(t, session, "pinned-images.example.com", `{}`)
	if v.GetRefused().GetReason() != "draining" {
		t.Errorf("verdict of a call after the drain: %v", v)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if verdicts, err := inFlight.Wait(cancelled); err != nil || verdicts[0].GetCancelled() == nil {
		t.Errorf("verdict of the call in flight: %v, %v", verdicts, err)
	}
	if err := session.Ended(t.Context()); err != nil {
		t.Errorf("end: %v", err)
	}
	if err := process.wait(); err != nil {
		t.Errorf("the process ended with %v", err)
	}
	if log := process.output.String(); !strings.Contains(log, "hunter2") {
		t.Errorf("the operator of the host is not told what failed:\n%s", log)
	}
}

func ask(t *testing.T, session *hosttest.Session, hook, object string) *hostv1.Verdict {
	t.Helper()
	v, err := session.Ask(t.Context(), hook, hosttest.Create(object))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func accept(t *testing.T, l *hosttest.Listener) *hosttest.Session {
	t.Helper()
	session, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// listen starts a dispatcher at an address.
func listen(t *testing.T, address string, security grpc.ServerOption) *hosttest.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return hosttest.Listen(t, hosttest.ListenOptions{Listener: listener, Server: []grpc.ServerOption{security}})
}

// certificates are the files of the host, as its flag takes them, and the other side's view of them.
func certificates(t *testing.T) (files []string, security grpc.ServerOption) {
	t.Helper()
	authority, err := certs.NewAuthority("test", 0)
	if err != nil {
		t.Fatal(err)
	}
	hostPair, errHost := authority.Issue(certs.Spec{Identity: "spiffe://example.com/python-host", Client: true})
	serverPair, errServer := authority.Issue(certs.Spec{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	server, errPair := serverPair.TLS()
	if err := errors.Join(errHost, errServer, errPair); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files = []string{filepath.Join(dir, "ca.crt"), filepath.Join(dir, "host.crt"), filepath.Join(dir, "host.key")}
	if err := errors.Join(authority.CA().WriteCert(files[0]), hostPair.Write(files[1], files[2])); err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(authority.CA().CertPEM)
	return files, grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server},
		ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	}))
}

func apply(t *testing.T, object string, patch []byte) string {
	t.Helper()
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := operations.Apply([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	return string(changed)
}

// process is the host, running.
type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer // to be read after wait
	wait   func() error
}

// start runs the host until the end of the test.
func start(t *testing.T, python, environment string, args ...string) *process {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(t.Context(), python, append([]string{"-B", "-c", hooksForTests, here}, args...)...)}
	p.cmd.Env = append(os.Environ(), environment)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.wait = sync.OnceValue(p.cmd.Wait)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // It may have ended by itself.
		_ = p.wait()
		if t.Failed() {
			t.Logf("the host said:\n%s", p.output.String())
		}
	})
	return p
}

// prepare makes a virtual environment, once, under .tmp of the repository, and generates the stubs. It skips only if
// the machine lacks a tool; in CI it does not skip at all.
func prepare(t *testing.T) (python, generated string) {
	t.Helper()
	system, err := exec.LookPath("python3")
	if err != nil {
		citest.Lacks(t, "python3 is not installed")
	}
	sum := sha256.Sum256(read(t, "requirements.txt"))
	environment, err := filepath.Abs(filepath.Join(root, ".tmp", "python-"+hex.EncodeToString(sum[:6])))
	if err != nil {
		t.Fatal(err)
	}
	if !exists(t, environment) {
		install(t, system, environment)
	}
	python = filepath.Join(environment, "bin", "python")
	generated = t.TempDir()
	args := []string{"-m", "grpc_tools.protoc", "-I", "proto", "--python_out", generated, "--grpc_python_out", generated}
	if out, err := run(t, python, append(args, stubs...)...); err != nil {
		t.Fatalf("generating stubs: %v\n%s", err, out)
	}
	// The go command caches the result of a test by the files that the test itself opens.
	_ = read(t, "host.py")
	for _, file := range stubs {
		_ = read(t, filepath.Join(root, "proto", file))
	}
	return python, generated
}

// install makes a virtual environment with the dependencies of the host. It appears at once, for tests that run beside
// this one.
func install(t *testing.T, system, environment string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(environment), 0o750); err != nil {
		t.Fatal(err)
	}
	draft, err := os.MkdirTemp(filepath.Dir(environment), "python-draft-") //nolint:usetesting // it is renamed, on one file system
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(draft) }() // Nothing is left of it once it has its name.
	if out, err := run(t, system, "-m", "venv", draft); err != nil {
		if strings.Contains(out, "ensurepip") {
			citest.Lacks(t, "python3 comes without venv")
		}
		t.Fatalf("making a virtual environment: %v\n%s", err, out)
	}
	out, err := run(t, filepath.Join(draft, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"--only-binary", ":all:", "-r", filepath.Join("examples", "python", "requirements.txt"))
	if err != nil {
		if strings.Contains(out, "connection broken") || strings.Contains(out, "Max retries exceeded") {
			citest.Lacks(t, "the Python package registry cannot be reached")
		}
		t.Fatalf("installing requirements.txt: %v\n%s", err, out)
	}
	if err := os.Rename(draft, environment); err != nil && !exists(t, environment) {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// run runs a command in the root of the repository.
func run(t *testing.T, name string, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

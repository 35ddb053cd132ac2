package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// setupVariable has the test binary be a tenant: the file of its setup.
const setupVariable = "HOSTILE_SETUP"

// role is a tenant of one kind.
type role struct {
	name string
	// inputs are the rows of docs/security.md whose bytes it chooses.
	inputs []string
	// documents is the configuration that the operator has for the tenant; nil for none.
	documents func(*attack) []string
	// begin starts the acts of the tenant, which end with the attack.
	begin func(*attack)
}

// roles are all roles, in the order of the report.
func roles() []role {
	return []role{users(), webhooks(), conversions(), apiServer(), bridge(), host(), author(), controller(), directCaller(), stranger()}
}

// setup is the JSON input of the process of a tenant.
type setup struct {
	Role string `json:"role"`
	mesh.Addresses
	// Callers are certificates of API servers, and Mesh certificates of the mesh's authority, by identity.
	Callers map[string]pki.Pair `json:"callers"`
	Mesh    map[string]pki.Pair `json:"mesh"`
	// Authority is the certificate of the mesh's authority, as PEM.
	Authority []byte `json:"authority"`
	// Documents and Outcomes are files that the process writes.
	Documents string `json:"documents"`
	Outcomes  string `json:"outcomes"`
}

// tenantProcess is a tenant as the arena sees it.
type tenantProcess struct {
	setup
	process *process.Process
	stdin   *os.File
}

// lowPriority is a command that runs another one with little of the processors. In the soak, it runs only while no other program wants to, so that it does
// not delay the victim at all: beside a load it might not even begin.
func lowPriority() []string {
	if os.Getenv(citest.SoakVariable) != "" {
		return []string{"chrt", "--idle", "0"}
	}
	return []string{"nice", "-n", "19"}
}

// startTenant starts the process of a role. It acts from begin to end.
func (a *arena) startTenant(t *testing.T, r role) *tenantProcess {
	t.Helper()
	dir := t.TempDir()
	s := setup{
		Role: r.name, Addresses: a.dispatcher.Addresses, Authority: a.Authority().PEM(), Callers: map[string]pki.Pair{}, Mesh: map[string]pki.Pair{},
		Documents: filepath.Join(dir, "documents.yaml"), Outcomes: filepath.Join(dir, "outcomes.json"),
	}
	for _, name := range []string{tenantName, strangerName} {
		var err error
		if s.Callers[name], err = a.callers.Client(name); err != nil {
			t.Fatal(err)
		}
		if s.Mesh[name], err = a.Authority().Client(name); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "setup.json")
	writeJSON(t, file, s)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stdin, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	p, err := process.Start(process.Command{
		Path: "/usr/bin/env", Args: append(lowPriority(), own, "-test.run=^TestHostileTenants$"),
		Env: []string{setupVariable + "=" + file}, Stdin: stdin, LogFile: filepath.Join(dir, "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &tenantProcess{setup: s, process: p, stdin: write}
}

// documents is the configuration of the tenant, once its own servers run.
func (p *tenantProcess) documents(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var text []byte
	if err := p.process.Await(ctx, func(context.Context) (err error) {
		text, err = os.ReadFile(p.Documents)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// begin has the tenant act.
func (p *tenantProcess) begin(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		t.Fatal(err)
	}
}

// end ends the acts and the process of the tenant, and returns how often each outcome came.
func (p *tenantProcess) end(t *testing.T) (outcomes map[string]int) {
	t.Helper()
	p.stdin.Close()
	select {
	case <-p.process.Exited():
	case <-time.After(patience):
	}
	text, err := os.ReadFile(p.Outcomes)
	if err == nil {
		err = json.Unmarshal(text, &outcomes)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, p.process.Tail(30))
	}
	if err := p.process.Err(); err != nil {
		t.Errorf("the tenant has failed: %v\n%s", err, p.process.Tail(30))
	}
	return outcomes
}

// playTenant is the process of a tenant.
func playTenant(t *testing.T, file string) {
	ctx, end := context.WithCancel(t.Context())
	a := &attack{T: t, ctx: ctx, outcomes: map[string]int{}}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &a.setup)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range roles() {
		if r.name == a.Role {
			a.play(r, end)
			return
		}
	}
	t.Fatalf("no role %q", a.Role)
}

// writeJSON writes a file that is whole or absent.
func writeJSON(t *testing.T, file string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	writeWhole(t, file, data)
}

// writeWhole writes a file that is whole or absent.
func writeWhole(t *testing.T, file string, data []byte) {
	t.Helper()
	err := os.WriteFile(file+".next", data, 0o600)
	if err == nil {
		err = os.Rename(file+".next", file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// attack is a tenant that acts.
type attack struct {
	*testing.T
	setup
	ctx  context.Context
	acts sync.WaitGroup
	ends []func() // after the acts, the last first

	mu       sync.Mutex
	outcomes map[string]int
}

// play acts between a line of standard input and its end.
func (a *attack) play(r role, end func()) {
	var documents []string
	if r.documents != nil {
		documents = r.documents(a)
	}
	writeWhole(a.T, a.Documents, []byte(strings.Join(documents, "\n---\n")))
	stdin := bufio.NewReader(os.Stdin)
	if _, err := stdin.ReadString('\n'); err != nil {
		a.Fatal(err)
	}
	r.begin(a)
	_, _ = io.Copy(io.Discard, stdin)
	end()
	a.acts.Wait()
	for len(a.ends) > 0 {
		last := len(a.ends) - 1
		a.ends[last]()
		a.ends = a.ends[:last]
	}
	writeJSON(a.T, a.setup.Outcomes, a.outcomes)
}

// pause is between two acts of a worker.
const pause = 2 * time.Millisecond

// act has so many workers act, one after the other, until the attack ends. An act says its outcome, and is given its number.
func (a *attack) act(workers int, do func(ctx context.Context, n int) string) {
	for worker := range workers {
		a.acts.Go(func() {
			for n := worker; a.ctx.Err() == nil; n += workers {
				a.count(do(a.ctx, n))
				select {
				case <-a.ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
}

// count notes an outcome, except of acts that the end of the attack has cut off.
func (a *attack) count(outcome string) {
	if a.ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcomes[outcome]++
}

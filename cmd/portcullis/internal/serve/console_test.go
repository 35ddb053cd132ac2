package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/console"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// consoleState is a part of the document that the page shows.
type consoleState struct {
	Notes []string
	Hooks []struct{ DispatcherID string }
	Hosts []struct{ DispatcherID, State string }

	Dispatchers struct {
		Dispatchers []struct{ DispatcherID string }
	}
	Clusters []struct{ Name string }
}

// whole reports whether the state is of both dispatchers, with a host at each.
func (s *consoleState) whole() bool {
	hooks, hosts := map[string]bool{}, map[string]bool{}
	for _, h := range s.Hooks {
		hooks[h.DispatcherID] = true
	}
	for _, h := range s.Hosts {
		hosts[h.DispatcherID] = h.State == "STATE_SERVING"
	}
	return hooks["first"] && hooks["second"] && hosts["first"] && hosts["second"] && len(s.Dispatchers.Dispatchers) == 2 && len(s.Clusters) == 1 && len(s.Notes) == 0
}

// TestTheConsoleShowsEveryDispatcher asks a console as its page does. The tests of test/e2e/console look at the page itself.
func TestTheConsoleShowsEveryDispatcher(t *testing.T) {
	t.Parallel()
	o := etcdtest.Start(t).Options(etcdtest.User)
	may := func(c *serveConfig) {
		c.advertise, c.stores.operator.Names = []string{"127.0.0.1"}, []string{devAPIServer}
	}
	first := newReplica(t, "first", o, nil, may)
	newReplica(t, "second", o, first, may)
	first.host(t) // which learns the address of the second, and dials it too
	info := first.info
	info.ClientCert, info.ClientKey = first.dev.path("certs/"+devClientName+".crt"), first.dev.path("certs/"+devClientName+".key")

	address, token := startConsole(t, readyFileOf(t, info))
	var state consoleState
	for deadline := time.Now().Add(2 * time.Minute); !state.whole(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not the state of both dispatchers: %+v", state)
		}
		state = consoleState{}
		fetch(t, address+"data/state", token, &state)
	}
	if code := fetch(t, address+"data/state", "other", &struct{}{}); code != http.StatusUnauthorized {
		t.Errorf("another token: status %d", code)
	}
}

// startConsole runs the command until the test ends.
func startConsole(t *testing.T, ready string) (address, token string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	cmd := console.NewCommand()
	cmd.SetArgs([]string{"--ready-file", ready, "--listen", "127.0.0.1:0", "--settings", clitest.Write(t, "settings.yaml", "")})
	cmd.SetOut(writer)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = writer.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		_ = reader.Close()
		if err := <-ended; err != nil {
			t.Errorf("the console ended with %v", err)
		}
	})
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		if found := regexp.MustCompile(`(http://\S+/)#token=(\w+)`).FindStringSubmatch(lines.Text()); found != nil {
			return found[1], found[2]
		}
	}
	t.Fatalf("no address: %v", lines.Err())
	return "", ""
}

// fetch reads a document of a console as its page does.
func fetch(t *testing.T, url, token string, into any) (code int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Close = true // no connection outlives it
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

var redials = flag.Int("redials", 100, "how many hosts dial at once; each takes a file of two processes")

// asHosts makes the test's own binary a crowd of hosts, so that their memory and CPU are measured apart from the
// callers'.
const asHosts = "RUN_AS_HOSTS"

// crowdOptions are the settings of a crowd of hosts.
type crowdOptions struct {
	Address string `json:"address"`
	CA      string `json:"ca"`
	Cert    string `json:"cert"`
	Key     string `json:"key"`
	Hosts   int    `json:"hosts"`
}

// Hosts that dial all at once, as after a restart, all get in; reviews and a direct caller who dials among them are served
// meanwhile. It prints their times.
func TestReviewsGoOnWhileHostsDialAtOnce(t *testing.T) {
	probe, err := net.Listen("tcp", "127.1.0.1:0")
	if err != nil {
		citest.Lacks(t, fmt.Sprint("hosts need loopback addresses of their own: ", err))
	}
	probe.Close()
	s := newSoak(t, soakOptions{stage: "validate", budget: *soakBudget})
	close(s.over)
	quiet := s.latencies(time.Second, nil)
	connected := s.crowd(*redials)
	begun := time.Now()
	var storm, calls []time.Duration
	var both sync.WaitGroup
	both.Go(func() { storm = s.latencies(time.Minute, connected) })
	both.Go(func() { calls = s.dials(connected) })
	<-connected
	took := time.Since(begun)
	both.Wait()
	t.Logf("%d hosts were connected after %s", *redials, took)
	t.Logf("reviews before:  %s", quantiles(quiet))
	t.Logf("reviews meanwhile: %s", quantiles(storm))
	t.Logf("direct callers that dialled meanwhile: %s", quantiles(calls))
	for deadline := time.Now().Add(time.Minute); s.metric("portcullis_host_sessions") < int64(*redials); {
		if time.Now().After(deadline) { // sessions of hosts that had no processor for seconds are lost, and come back
			t.Fatalf("%d sessions, want %d", s.metric("portcullis_host_sessions"), *redials)
		}
	}
}

// quantiles shows times.
func quantiles(all []time.Duration) string {
	slices.Sort(all)
	at := func(part float64) time.Duration {
		return all[int(part*float64(len(all)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d, p50 %s, p99 %s, longest %s", len(all), at(0.5), at(0.99), at(1))
}

// latencies sends reviews, one after the other, for so long or until over.
func (s *soak) latencies(long time.Duration, over <-chan struct{}) (all []time.Duration) {
	const callers = 4
	var mu sync.Mutex
	var calling sync.WaitGroup
	end := time.Now().Add(long)
	for range callers {
		client, body := s.connect(), soakReview("pods", "Pod", 1<<10)
		calling.Go(func() {
			for first := true; first || time.Now().Before(end); first = false {
				select {
				case <-over:
					return
				case <-time.After(2 * time.Millisecond):
				}
				begun := time.Now()
				if !s.judge(client, body) {
					return
				}
				mu.Lock()
				all = append(all, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	calling.Wait()
	return all
}

// dials has a direct caller dial, ask whether the dispatcher serves, and hang up, again and again.
func (s *soak) dials(over <-chan struct{}) (all []time.Duration) {
	for {
		begun := time.Now()
		conn, err := grpc.NewClient("passthrough:///"+s.info.Hosts, grpc.WithTransportCredentials(credentials.NewTLS(s.tls)))
		if err == nil {
			_, err = grpc_health_v1.NewHealthClient(conn).Check(s.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
			conn.Close()
		}
		if err != nil {
			s.Errorf("a direct caller: %v", err)
			return all
		}
		all = append(all, time.Since(begun))
		select {
		case <-over:
			return all
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// crowd has hosts dial at once, in a process of their own. The returned channel is closed when all are connected.
func (s *soak) crowd(n int) <-chan struct{} {
	s.Helper()
	d := &dev{dir: s.dir}
	cert, key := d.hostFiles()
	said, err := json.Marshal(crowdOptions{Address: s.info.Hosts, CA: d.path("certs/ca.crt"), Cert: cert, Key: key, Hosts: n})
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.CommandContext(s.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), asHosts+"="+string(said)), s.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	connected := make(chan struct{})
	go func() {
		defer close(connected)
		_, _ = bufio.NewReader(out).ReadString('\n')
	}()
	s.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended by then
	return connected
}

// runHosts is the crowd. It stays until its process is ended.
func runHosts(said string) error {
	var o crowdOptions
	if err := json.Unmarshal([]byte(said), &o); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(o.CA)
	if err != nil {
		return err
	}
	config := &tls.Config{RootCAs: poolFrom(pem), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	var connecting sync.WaitGroup
	connecting.Add(o.Hosts)
	for i := range o.Hosts {
		welcome := sync.OnceFunc(connecting.Done)
		go func() {
			for {
				_ = runHost(o.Address, config, i, welcome)
				time.Sleep(time.Duration(rand.Int64N(int64(5 * time.Second)))) //nolint:forbidigo // as SDKs do, in another process
			}
		}()
	}
	connecting.Wait()
	fmt.Println("connected") //nolint:forbidigo // to the test
	select {}
}

// runHost connects a host of a hook that nobody asks, from an address of its own, and answers pings until its session ends.
func runHost(address string, config *tls.Config, number int, welcome func()) error {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, byte(1+number>>16), byte(number>>8), byte(number))}}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return from.DialContext(ctx, "tcp", to) }))
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := hostv1.NewHostServiceClient(conn).Connect(context.Background())
	if err != nil {
		return err
	}
	says := &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: &hostv1.Hello{
		Host: "h", Instance: fmt.Sprint(number), ProtocolMin: 1, ProtocolMax: 1,
		Hooks: []*hostv1.HookOffer{{Name: "unknown.portcullis.dev", Stage: admissionv1.Stage_STAGE_VALIDATE}},
	}}}
	for {
		if says != nil {
			if err := stream.Send(says); err != nil {
				return err
			}
		}
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		welcome()
		says = nil
		if p := f.GetPing(); p != nil {
			says = &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: p.GetSeq()}}}
		}
	}
}

package hostsdk_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// TestProtocol plays the transcripts of testdata/protocol: the frames of a dispatcher, and the answers of the host,
// frame by frame and under a fake clock. They are the contract in examples. -rewrite writes the answers anew.
func TestProtocol(t *testing.T) {
	files, err := filepath.Glob("testdata/protocol/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stage := &stage{t: t, releases: map[string]chan struct{}{}}
				defer stage.leave()
				datadriven.RunTest(t, file, stage.play)
				stage.transcript.check(t, file)
			})
		})
	}
}

// stage is one host and its dispatcher.
type stage struct {
	t       *testing.T
	peer    *hosttest.Peer
	stop    context.CancelFunc
	running sync.WaitGroup

	transcript vector // of the played frames

	mu       sync.Mutex
	lines    []string // events since the last command
	releases map[string]chan struct{}
}

// play carries out one command of a transcript and returns the events until nothing moves any more.
//
//	host hooks=(NAME, ...) [max-outstanding=N] [drain-timeout=D]
//	               starts a host and prints its first frames; a hook is named after its behaviour, see stage.handler
//	send           sends the frames in the input, one per line, in prototext; "unknown" is a frame from the future
//	chunks of=N [parts=(I, ...)]
//	               sends the review in the input in N chunks, or only some of them, counted from 0
//	advance D      lets time pass
//	release HOOK   lets the waiting handlers of a hook return
//	drain          ends the context that the host runs under
//	end [CODE]     ends the stream, cleanly or with a gRPC status
func (s *stage) play(t *testing.T, d *datadriven.TestData) string {
	step := vectorStep{Do: d.Cmd}
	switch d.Cmd {
	case "host":
		s.enter(d, &step)
	case "send":
		for line := range strings.Lines(d.Input) {
			text := strings.TrimSpace(line)
			s.send(s.frame(text), text, &step)
		}
	case "chunks":
		step.Do = "send"
		s.chunks(d, &step)
	case "advance":
		duration, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		step.Ms = duration.Milliseconds()
		time.Sleep(duration) //nolint:forbidigo // of the fake clock
	case "release":
		step.Hook = d.CmdArgs[0].Key
		s.release(step.Hook)
	case "drain":
		s.stop()
	case "end":
		s.end(d, &step)
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	synctest.Wait()
	happened := s.flush()
	step.expect(t, happened)
	s.transcript.Steps = append(s.transcript.Steps, step)
	return happened
}

// send sends a frame of the dispatcher.
func (s *stage) send(frame *hostv1.ConnectResponse, text string, step *vectorStep) {
	step.sent(s.t, frame, text)
	if err := s.peer.Send(frame); err != nil {
		s.sayf("send: %v", err)
	}
}

func (s *stage) enter(d *datadriven.TestData, step *vectorStep) {
	options := hostsdk.Options{
		Name: "imagepolicy", Instance: "imagepolicy-1", Logger: quiet(),
	}
	if d.HasArg("max-outstanding") {
		d.ScanArgs(s.t, "max-outstanding", &options.MaxOutstanding)
	}
	if d.HasArg("drain-timeout") {
		var text string
		d.ScanArgs(s.t, "drain-timeout", &text)
		options.DrainTimeout, _ = time.ParseDuration(text)
	}
	var hooks []hostsdk.Hook
	for _, arg := range d.CmdArgs {
		if arg.Key == "hooks" {
			step.Hooks = arg.Vals
			for _, name := range arg.Vals {
				hooks = append(hooks, s.hook(name))
			}
		}
	}
	host, err := hostsdk.New(options, hooks...)
	if err != nil {
		s.t.Fatal(err)
	}
	step.MaxOutstanding, step.DrainTimeoutMs = options.MaxOutstanding, options.DrainTimeout.Milliseconds()
	ctx, stop := context.WithCancel(s.t.Context())
	s.stop = stop
	peer := hosttest.Pipe()
	s.peer = peer
	s.running.Go(func() { s.sayf("session ended: %v", host.Serve(ctx, peer.Open)) })
	s.running.Go(func() { s.record(peer) })
}

// chunks sends parts of a review, of which the last may be shorter than the others.
func (s *stage) chunks(d *datadriven.TestData, step *vectorStep) {
	var of int
	d.ScanArgs(s.t, "of", &of)
	review := &hostv1.Review{}
	if err := prototext.Unmarshal([]byte(d.Input), review); err != nil {
		s.t.Fatalf("%s: %v", d.Input, err)
	}
	encoded, err := proto.Marshal(review)
	if err != nil {
		s.t.Fatal(err)
	}
	var wanted []string
	for _, arg := range d.CmdArgs {
		if arg.Key == "parts" {
			wanted = arg.Vals
		}
	}
	i := 0
	for part := range slices.Chunk(encoded, (len(encoded)+of-1)/of) {
		chunk := &hostv1.Chunk{
			CallId: review.GetCallId(), TotalBytes: uint64(len(encoded)), Hooks: uint32(len(review.GetHooks())), Data: part,
		}
		if wanted == nil || slices.Contains(wanted, strconv.Itoa(i)) {
			frame := &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Chunk{Chunk: chunk}}
			s.send(frame, fmt.Sprintf("chunk %d of %d of %s", i, of, d.Input), step)
		}
		i++
	}
}

// hook is a hook that a transcript asks, named after its behaviour.
func (s *stage) hook(name string) hostsdk.Hook {
	switch handler := s.handler(name); name {
	case "patch":
		return hostsdk.Mutate(name, handler)
	case "initialize":
		return hostsdk.Initialize(name, handler)
	case "unready":
		return hostsdk.Validate(name, handler, hostsdk.ReadyWhen(func(context.Context) error {
			return hostsdk.NewError("cache is empty", nil)
		}))
	default:
		return hostsdk.Validate(name, handler)
	}
}

func (s *stage) handler(name string) hostsdk.Handler {
	return func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		switch name {
		case "allow", "unready":
			return hostsdk.Allow(), nil
		case "deny":
			return hostsdk.Deny("no").WithCause("spec.image", "latest"), nil
		case "deny-at-length":
			return hostsdk.Deny(strings.Repeat("no ", 100)), nil
		case "patch", "stray-patch", "initialize":
			return hostsdk.Patch(r.RawObject()).WithWarnings("patched in round " + strconv.Itoa(r.Round)), nil
		case "name-configuration":
			return hostsdk.Allow().WithAudit("configuration", r.Configuration), nil
		case "name-mode":
			return hostsdk.Allow().WithAudit("mode", "MODE_"+strings.ToUpper(cmp.Or(string(r.Mode), "unspecified"))), nil
		case "fail":
			return nil, errors.New("password is hunter2")
		case "fail-in-public":
			return nil, fmt.Errorf("wrapped: %w", hostsdk.NewError("registry is down", errors.New("password is hunter2")))
		case "panic":
			panic("password is hunter2")
		case "exit":
			runtime.Goexit()
			return hostsdk.Allow(), nil
		case "stubborn": // Answers when it is released, whatever its context says.
			<-s.held(name)
			return hostsdk.Allow(), nil
		case "wait": // Answers when it is released, and heeds its context.
			return s.wait(ctx, name)
		default: // "say-nothing"
			return nil, nil
		}
	}
}

func (s *stage) wait(ctx context.Context, name string) (*hostsdk.Response, error) {
	select {
	case <-s.held(name):
		return hostsdk.Allow(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// held is closed when the hook is released.
func (s *stage) held(hook string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, "handler of "+hook+" started")
	if s.releases[hook] == nil {
		s.releases[hook] = make(chan struct{})
	}
	return s.releases[hook]
}

func (s *stage) release(hook string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.releases[hook]; c != nil {
		close(c)
		delete(s.releases, hook)
	}
}

func (s *stage) end(d *datadriven.TestData, step *vectorStep) {
	if len(d.CmdArgs) == 0 {
		s.peer.End(nil)
		return
	}
	step.Code = d.CmdArgs[0].Key
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + d.CmdArgs[0].Key + `"`)); err != nil {
		s.t.Fatal(err)
	}
	s.peer.End(status.Error(code, "as the transcript says"))
}

// record notes the host's frames.
func (s *stage) record(peer *hosttest.Peer) {
	for {
		frame, err := peer.Recv()
		switch {
		case errors.Is(err, io.EOF):
			s.sayf("host sends no more")
			return
		case err != nil:
			return
		}
		s.sayf("%s", oneLine(frame))
	}
}

func (s *stage) sayf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// flush returns the events: first the handlers that started, then the frames. Handlers run at the same time, so the
// order of their verdicts means nothing.
func (s *stage) flush() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	slices.SortStableFunc(lines, func(a, b string) int {
		started := strings.HasPrefix(a, "handler")
		switch {
		case started && strings.HasPrefix(b, "handler"):
			return strings.Compare(a, b)
		case started:
			return -1
		case strings.HasPrefix(b, "handler"):
			return 1
		default:
			return 0
		}
	})
	for i := 0; i < len(lines); i++ {
		run := i
		for run < len(lines) && strings.HasPrefix(lines[run], "verdict") {
			run++
		}
		slices.Sort(lines[i:run])
		i = max(i, run)
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines, "\n")
}

// leave ends whatever the transcript left running.
func (s *stage) leave() {
	if s.peer == nil {
		return
	}
	s.stop()
	s.peer.End(nil)
	for _, hook := range []string{"wait", "stubborn"} {
		s.release(hook)
	}
	s.running.Wait()
}

func (s *stage) frame(line string) *hostv1.ConnectResponse {
	frame := &hostv1.ConnectResponse{}
	if line == "unknown" {
		fromTheFuture := protowire.AppendTag(nil, 1000, protowire.BytesType)
		frame.ProtoReflect().SetUnknown(protowire.AppendString(fromTheFuture, "?"))
		return frame
	}
	if err := prototext.Unmarshal([]byte(line), frame); err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	return frame
}

// spaces match the white space that prototext varies on purpose from build to build.
var spaces = regexp.MustCompile(`\s+`)

func oneLine(frame *hostv1.ConnectRequest) string {
	return spaces.ReplaceAllString(prototext.MarshalOptions{}.Format(frame), " ")
}

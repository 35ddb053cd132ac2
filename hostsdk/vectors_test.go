package hostsdk_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// vectorsDir holds the transcripts of testdata/protocol for readers that have neither Go nor prototext: the SDKs of other languages.
const vectorsDir = "../sdk/conformance/vectors"

// vector is one transcript.
type vector struct {
	// Name is the name of the file.
	Name string `json:"name"`
	// About is the comment at its head.
	About string `json:"about"`
	// Steps are the events, in order.
	Steps []vectorStep `json:"steps"`
}

// vectorStep is one command of a transcript, see stage.play. Chunks are frames to send.
type vectorStep struct {
	Do             string   `json:"do"`
	Hooks          []string `json:"hooks,omitempty"`
	MaxOutstanding int      `json:"maxOutstanding,omitempty"`
	DrainTimeoutMs int64    `json:"drainTimeoutMs,omitempty"`
	// Frames are encoded frames of the dispatcher in hexadecimal, and Text the same for people.
	Frames []string `json:"frames,omitempty"`
	Text   []string `json:"text,omitempty"`
	Ms     int64    `json:"ms,omitempty"`
	Hook   string   `json:"hook,omitempty"`
	Code   string   `json:"code,omitempty"`
	// Expect are the actions of the host until nothing moves any more.
	Expect []vectorEvent `json:"expect"`
}

// vectorEvent is one thing that a host does: exactly one field is set, but for Text beside Frame.
type vectorEvent struct {
	// Started is the hook whose handler was called.
	Started string `json:"started,omitempty"`
	// Frame is an encoded frame of the host in hexadecimal, and Text the same for people.
	Frame string `json:"frame,omitempty"`
	Text  string `json:"text,omitempty"`
	// Closed says that the host sends no more.
	Closed bool `json:"closed,omitempty"`
	// Ended says how the session ended: by an error, or "" after a drain.
	Ended *string `json:"ended,omitempty"`
}

// sent notes a frame of the dispatcher.
func (s *vectorStep) sent(t *testing.T, frame *hostv1.ConnectResponse, text string) {
	t.Helper()
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(frame)
	if err != nil {
		t.Fatal(err)
	}
	s.Frames = append(s.Frames, hex.EncodeToString(encoded))
	s.Text = append(s.Text, text)
}

// expect notes the events that stage.flush reports.
func (s *vectorStep) expect(t *testing.T, happened string) {
	t.Helper()
	s.Expect = []vectorEvent{}
	for line := range strings.SplitSeq(happened, "\n") {
		switch {
		case line == "nothing":
		case line == "host sends no more":
			s.Expect = append(s.Expect, vectorEvent{Closed: true})
		case strings.HasPrefix(line, "handler of "):
			hook := strings.TrimSuffix(strings.TrimPrefix(line, "handler of "), " started")
			s.Expect = append(s.Expect, vectorEvent{Started: hook})
		case strings.HasPrefix(line, "session ended: "):
			why := strings.TrimPrefix(line, "session ended: ")
			if why == "<nil>" {
				why = ""
			}
			s.Expect = append(s.Expect, vectorEvent{Ended: &why})
		default:
			frame := &hostv1.ConnectRequest{}
			if err := prototext.Unmarshal([]byte(line), frame); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(frame)
			if err != nil {
				t.Fatal(err)
			}
			s.Expect = append(s.Expect, vectorEvent{Frame: hex.EncodeToString(encoded), Text: line})
		}
	}
}

// check compares a vector with its file, or writes it under -rewrite. A copy of this module alone has no files.
func (v *vector) check(t *testing.T, transcript string) {
	t.Helper()
	if _, err := os.Stat(vectorsDir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	text, err := os.ReadFile(transcript)
	if err != nil {
		t.Fatal(err)
	}
	v.Name, v.About = strings.TrimSuffix(filepath.Base(transcript), ".txt"), about(string(text))
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(vectorsDir, v.Name+".json")
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s differs from %s: run `go test -C hostsdk . -run TestProtocol -rewrite`", file, transcript)
	}
}

// about is the comment at the head of a transcript, as one line.
func about(transcript string) string {
	var comment []string
	for line := range strings.SplitSeq(transcript, "\n") {
		text, ok := strings.CutPrefix(line, "# ")
		if !ok {
			break
		}
		comment = append(comment, text)
	}
	return strings.Join(comment, " ")
}

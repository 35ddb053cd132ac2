package hostsdk

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// outbox holds encoded frames that are to be sent, in order. Successive verdicts become one frame if the dispatcher takes
// batches; no verdict waits for others to come. It is pure; the zero value is empty.
type outbox struct {
	batches bool // several verdicts in a frame
	limit   int  // size of such a frame

	frames  [][]byte
	run     []byte // verdicts behind the frames, each as a member of Verdicts
	members int    // of run
	waiting int    // verdicts and other frames
}

// allowBatches allows several verdicts in a frame, of at most limit bytes.
func (o *outbox) allowBatches(limit int) { o.batches, o.limit = true, min(limit, maxBatchBytes) }

func (o *outbox) message(m *hostv1.ConnectRequest) {
	encoded, err := proto.Marshal(m)
	if err != nil {
		return // Not reached: texts are made valid where they come in.
	}
	o.seal()
	o.frames = append(o.frames, encoded)
	o.waiting++
}

// verdict adds an encoded Verdict, which stays the caller's.
func (o *outbox) verdict(encoded []byte) {
	full := !o.batches || o.members == maxBatch || len(o.run)+len(encoded)+2*frameOverhead > o.limit
	if full {
		o.seal()
	}
	o.run = protowire.AppendTag(o.run, wire.VerdictsVerdicts, protowire.BytesType)
	o.run = protowire.AppendBytes(o.run, encoded)
	o.members++
	o.waiting++
}

// seal makes the run one frame. Only the tag of the encoding differs between a frame with one verdict and a member of a
// run.
func (o *outbox) seal() {
	var frame []byte
	switch o.members {
	case 0:
		return
	case 1:
		frame = append(frame, o.run...)
		protowire.AppendTag(frame[:0], wire.ConnectRequestVerdict, protowire.BytesType)
	default:
		frame = make([]byte, 0, len(o.run)+frameOverhead)
		frame = protowire.AppendTag(frame, wire.ConnectRequestVerdicts, protowire.BytesType)
		frame = protowire.AppendBytes(frame, o.run)
	}
	o.frames = append(o.frames, frame)
	o.run, o.members = o.run[:0], 0
	if cap(o.run) > maxBatchBytes { // A large patch: seldom, and not kept.
		o.run = nil
	}
}

// takeFrames empties the outbox and returns its frames. It reuses the memory of the frames before.
func (o *outbox) takeFrames(before [][]byte) [][]byte {
	o.seal()
	frames := o.frames
	o.frames, o.waiting = before[:0], 0
	return frames
}

func (o *outbox) drop() { *o = outbox{batches: o.batches, limit: o.limit} }

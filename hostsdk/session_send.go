package hostsdk

import (
	"context"
	"errors"
	"io"
	"runtime"
)

// write sends the frames that no handler sends, until the stream ends.
func (s *session) write(ctx context.Context) {
	for {
		s.flush()
		select {
		case <-s.forWriter:
		case <-ctx.Done():
			return
		}
	}
}

// flush empties the outbox. One goroutine does so at a time, and also sends the frames that others add meanwhile. A handler
// that has returned sends for itself; the reader must not be delayed, and wakes the writer.
func (s *session) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending {
		return
	}
	s.sending = true
	defer func() { s.sending = false }()
	for s.state.toSend() {
		if s.state.mayShare() {
			s.mu.Unlock()
			runtime.Gosched() // It does not wait for handlers that cannot run now.
			s.mu.Lock()
		}
		s.frames = s.state.out.takeFrames(s.frames)
		last := s.state.finishing
		s.mu.Unlock()
		wake(s.forReader)
		err := s.send(s.frames, last)
		s.mu.Lock()
		if last || err != nil {
			s.state.unwritable()
		}
	}
}

// send writes frames, and closes the host's side behind the last one. A failed write ends the sending; the reader goes on, and
// learns why the stream ended.
func (s *session) send(frames [][]byte, last bool) error {
	defer clear(frames)
	for _, frame := range frames {
		if err := s.stream.Send(frame); err != nil {
			if !errors.Is(err, io.EOF) {
				s.abort(err)
			}
			return err
		}
	}
	if last {
		if err := s.stream.CloseSend(); err != nil {
			s.abort(err)
		}
	}
	return nil
}

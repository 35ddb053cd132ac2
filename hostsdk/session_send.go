package hostsdk

import (
	"context"
	"errors"
	"io"
	"runtime"
)

// write sends what the other senders leave, until the stream ends.
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

// flush sends what is in the outbox. One goroutine does so at a time: what others put there meanwhile it sends as well.
// Handlers that are done send for themselves; the reader must not be held up, and wakes the writer.
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
			runtime.Gosched() // Handlers that cannot run now are not waited for.
			s.mu.Lock()
		}
		s.frames = s.state.out.take(s.frames)
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

// send writes frames, which it does not keep, and closes the host's side behind the last one.
func (s *session) send(frames [][]byte, last bool) error {
	defer clear(frames)
	for _, frame := range frames {
		if err := s.stream.Send(frame); err != nil {
			return s.unwritable(err)
		}
	}
	if last {
		if err := s.stream.CloseSend(); err != nil {
			s.abort(err)
		}
	}
	return nil
}

// unwritable is the end of the sending. The reader goes on, and learns why the stream ended.
func (s *session) unwritable(err error) error {
	if !errors.Is(err, io.EOF) {
		s.abort(err)
	}
	return err
}

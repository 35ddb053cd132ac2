package dev.portcullis.host;

import dev.portcullis.host.v1.DispatcherDrain;
import dev.portcullis.host.v1.HookState;
import dev.portcullis.host.v1.Welcome;

/** Hears what a session reads of its dispatcher, on the thread that reads: it must not block. */
interface SessionListener {
  void welcomed(StreamSession session, Welcome welcome);

  void hookChanged(StreamSession session, HookState state);

  void leaving(StreamSession session, DispatcherDrain drain);

  void ended(StreamSession session);
}

/** Stream is the host's end of one session. It carries encoded frames. */
export interface Stream {
  /** Writes an encoded ConnectRequest, and returns false if the next one should wait for {@link StreamEvents.writable}. */
  send(frame: Uint8Array): boolean;
  /** Ends the sending. Frames of the other side still come. */
  closeSend(): void;
  /** No frames, until resume. */
  pause(): void;
  /** Frames again. */
  resume(): void;
  /** Ends the stream at once. No event follows. */
  cancel(): void;
}

/** What a stream tells its session. */
export interface StreamEvents {
  /** An encoded ConnectResponse has come. Its bytes are the session's, for good. */
  frame(encoded: Uint8Array): void;
  /** Frames can be sent again. */
  writable(): void;
  /** The stream has ended: cleanly, or by an error. The last event. */
  ended(error?: Error): void;
}

/** OpenStream opens the stream of a session. Events come after it has returned. It throws if it cannot. */
export type OpenStream = (events: StreamEvents) => Stream;

package dev.portcullis.host;

import java.time.Duration;

/** The call that a handler answers, as {@link Request} shows it. Safe for concurrent use. */
interface Call {
  /** A call of a test. */
  Call ENDLESS =
      new Call() {
        @Override
        public Duration remaining() {
          return Duration.ofDays(1);
        }

        @Override
        public boolean isCancelled() {
          return false;
        }

        @Override
        public void onCancel(Runnable action) {}
      };

  Duration remaining();

  boolean isCancelled();

  void onCancel(Runnable action);
}

package dev.portcullis.host;

import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.function.LongSupplier;

/** The call of a running handler. */
record RunningCall(Invocation invocation, LongSupplier clock, Executor callbacks) implements Call {
  @Override
  public Duration remaining() {
    return Duration.ofNanos(Math.max(0, invocation.deadline() - clock.getAsLong()));
  }

  @Override
  public boolean isCancelled() {
    return invocation.isStopped();
  }

  @Override
  public void onCancel(Runnable action) {
    if (!invocation.keep(action)) {
      callbacks.execute(action);
    }
  }
}

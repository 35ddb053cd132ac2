package dev.portcullis.host;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.function.LongSupplier;

/**
 * What the sessions of a host share.
 *
 * @param clock nanoseconds since any beginning
 * @param timer one thread, for work that does not block
 * @param workers threads of the SDK, for work that may block
 */
record Machinery(
    LongSupplier clock,
    ScheduledThreadPoolExecutor timer,
    ExecutorService workers,
    HandlerPool pool,
    Budget budget) {
  long now() {
    return clock.getAsLong();
  }
}

package dev.portcullis.host;

import dev.portcullis.host.v1.Hello;
import io.opentelemetry.api.OpenTelemetry;
import java.lang.System.Logger;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import org.jspecify.annotations.Nullable;

/**
 * What a host is built with.
 *
 * @param hello without the share of the calls
 * @param drainTimeout in nanoseconds
 * @param executor null if the host makes its own
 */
record Settings(
    Hello hello,
    Map<HookId, Hook> hooks,
    List<String> dispatchers,
    String serverName,
    Tls tls,
    int maxOutstanding,
    long drainTimeout,
    @Nullable Executor executor,
    Codec codec,
    Resolver resolver,
    OpenTelemetry openTelemetry,
    Logger logger) {
  Settings {
    if (hooks.isEmpty()) {
      throw new IllegalStateException("the host has no hooks: add some with validate or mutate");
    }
    if (dispatchers.isEmpty()) {
      throw new IllegalStateException("the host has no dispatchers: name them, host:port");
    }
  }
}

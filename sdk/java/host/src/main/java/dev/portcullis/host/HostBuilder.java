package dev.portcullis.host;

import dev.portcullis.admission.v1.Stage;
import dev.portcullis.host.v1.Hello;
import dev.portcullis.host.v1.HookOffer;
import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.OpenTelemetry;
import java.lang.System.Logger;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Executor;
import org.jspecify.annotations.Nullable;

/**
 * Says what a {@link Host} does. A later call of a method replaces what an earlier one said, except
 * that each of {@link #validate} and {@link #mutate} adds a hook. Not for concurrent use.
 */
public final class HostBuilder {
  private static final int SUFFIX = 8;

  private final Hello.Builder hello = Hello.newBuilder();
  private final Map<HookId, Hook> hooks = new LinkedHashMap<>();
  private List<String> dispatchers = List.of();
  private String serverName = "";
  private @Nullable Tls tls;
  private int maxOutstanding = Limits.MAX_OUTSTANDING;
  private long drainTimeout = Limits.DRAIN_TIMEOUT;
  private @Nullable Executor executor;
  private Codec codec = Codec.jackson();
  private Resolver resolver = HostBuilder::lookUp;
  private @Nullable OpenTelemetry openTelemetry;
  private Logger logger = System.getLogger("dev.portcullis.host");

  HostBuilder(String name) {
    if (name.isEmpty()) {
      throw new IllegalArgumentException("the name of the host is empty");
    }
    hello
        .setProtocolMin(Limits.PROTOCOL)
        .setProtocolMax(Limits.PROTOCOL)
        .setHost(name)
        .setSdk(Limits.SDK)
        .setSdkVersion(Limits.SDK_VERSION)
        .setMaxFrameBytes(Limits.MAX_FRAME_BYTES)
        .addCapabilities(Limits.BATCHES)
        .addCapabilities(Limits.CHUNKS);
  }

  /**
   * Sets the addresses to dial. Each address that a name resolves to is a dispatcher, and each has
   * a session. Names are resolved again every 5 s; the JVM keeps addresses for 30 s, unless the
   * security property {@code networkaddress.cache.ttl} or the system property {@code
   * sun.net.inetaddr.ttl} says otherwise.
   *
   * @param addresses host:port
   * @return this builder
   * @throws IllegalArgumentException if one is not host:port
   */
  public HostBuilder dispatchers(String... addresses) {
    for (String address : addresses) {
      if (HostPort.parse(address).isEmpty()) {
        throw new IllegalArgumentException("a dispatcher is host:port, not " + address);
      }
    }
    dispatchers = List.of(addresses);
    return this;
  }

  /**
   * Sets how sessions are secured. Required.
   *
   * @param tls the security
   * @return this builder
   */
  public HostBuilder tls(Tls tls) {
    this.tls = tls;
    return this;
  }

  /**
   * Sets the name that every dispatcher's certificate must carry. Without it that is the host of
   * its address; a peer that is named by its IP address alone is known by the name of the
   * dispatcher that named it.
   *
   * @param name the name; empty means not set
   * @return this builder
   */
  public HostBuilder serverName(String name) {
    serverName = name;
    return this;
  }

  /**
   * Names this process among its replicas. Without it that is the name of the machine and a random
   * suffix.
   *
   * @param instance new at each start; empty means not set
   * @return this builder
   */
  public HostBuilder instance(String instance) {
    hello.setInstance(instance);
    return this;
  }

  /**
   * Names the failure domain that the process runs in.
   *
   * @param zone for example "eu-west-1a"; empty means unknown
   * @return this builder
   */
  public HostBuilder zone(String zone) {
    hello.setZone(zone);
    return this;
  }

  /**
   * Names the clusters that the host wants to serve.
   *
   * @param clusters none means all that it is granted
   * @return this builder
   */
  public HostBuilder clusters(String... clusters) {
    hello.clearClusters().addAllClusters(Arrays.asList(clusters));
    return this;
  }

  /**
   * Sets how many calls the host takes at a time, divided over its sessions. It bounds the handlers
   * that run at once.
   *
   * @param calls 1 or more; 64 if it is not set
   * @return this builder
   * @throws IllegalArgumentException if it is less
   */
  public HostBuilder maxOutstanding(int calls) {
    maxOutstanding = positive(calls, "maxOutstanding");
    return this;
  }

  /**
   * Sets the largest review that the host takes.
   *
   * @param bytes 1 or more; 16 MiB if it is not set
   * @return this builder
   * @throws IllegalArgumentException if it is less
   */
  public HostBuilder maxFrameBytes(int bytes) {
    hello.setMaxFrameBytes(positive(bytes, "maxFrameBytes"));
    return this;
  }

  /**
   * Sets how long the calls in flight may take once the host drains.
   *
   * @param timeout more than zero; 10 s if it is not set
   * @return this builder
   * @throws IllegalArgumentException if it is less
   */
  public HostBuilder drainTimeout(Duration timeout) {
    if (timeout.isZero() || timeout.isNegative()) {
      throw new IllegalArgumentException("drainTimeout is not positive: " + timeout);
    }
    drainTimeout = timeout.toNanos();
    return this;
  }

  /**
   * Sets what runs the handlers, for example an executor of virtual threads. It should start a task
   * at once: no more than the maximum of outstanding calls are handed to it at a time. It stays the
   * caller's to shut down.
   *
   * @param executor without one the host has threads of its own
   * @return this builder
   */
  public HostBuilder executor(Executor executor) {
    this.executor = executor;
    return this;
  }

  /**
   * Sets what decodes objects into types.
   *
   * @param codec {@link Codec#jackson()} if it is not set
   * @return this builder
   */
  public HostBuilder codec(Codec codec) {
    this.codec = codec;
    return this;
  }

  /**
   * Sets what looks up the addresses of names.
   *
   * @param resolver {@link InetAddress#getAllByName} if it is not set
   * @return this builder
   */
  public HostBuilder resolver(Resolver resolver) {
    this.resolver = resolver;
    return this;
  }

  /**
   * Sets what takes the spans and metrics of handlers.
   *
   * @param openTelemetry {@link GlobalOpenTelemetry} if it is not set
   * @return this builder
   */
  public HostBuilder openTelemetry(OpenTelemetry openTelemetry) {
    this.openTelemetry = openTelemetry;
    return this;
  }

  /**
   * Sets what receives what the operator of the host should know.
   *
   * @param logger the logger "dev.portcullis.host" if it is not set
   * @return this builder
   */
  public HostBuilder logger(Logger logger) {
    this.logger = logger;
    return this;
  }

  /**
   * Adds a validating hook.
   *
   * @param name of the hook, as in its configuration
   * @param handler judges requests, for example a {@link Validator}
   * @param options say more about it
   * @return this builder
   * @throws IllegalArgumentException if the name is empty or was added before, or the host has
   *     1,024 hooks
   */
  public HostBuilder validate(String name, Handler handler, HookOption... options) {
    return add(new HookId(name, Stage.STAGE_VALIDATE), handler, options);
  }

  /**
   * Adds a validating hook of typed objects. A request without an object, which is a {@code
   * DELETE}, is allowed: {@link Validator} judges those too.
   *
   * @param <T> the type
   * @param name of the hook, as in its configuration
   * @param type for example the {@code Pod} of fabric8, or Jackson's {@code ObjectNode}
   * @param judge judges objects
   * @param options say more about it
   * @return this builder
   * @throws IllegalArgumentException if the name is empty or was added before, or the host has
   *     1,024 hooks
   */
  public <T> HostBuilder validate(
      String name, Class<T> type, Validator.Judge<T> judge, HookOption... options) {
    return validate(
        name,
        request -> {
          T object = request.object(type);
          return object == null ? Response.allow() : judge.judge(object, request);
        },
        options);
  }

  /**
   * Adds a mutating hook.
   *
   * @param name of the hook, as in its configuration
   * @param handler judges requests, for example a {@link Mutator}
   * @param options say more about it
   * @return this builder
   * @throws IllegalArgumentException if the name is empty or was added before, or the host has
   *     1,024 hooks
   */
  public HostBuilder mutate(String name, Handler handler, HookOption... options) {
    return add(new HookId(name, Stage.STAGE_MUTATE), handler, options);
  }

  /**
   * Adds a mutating hook of typed objects. Members that the type does not know stay as they are. A
   * request without an object, which is a {@code DELETE}, is allowed.
   *
   * @param <T> the type
   * @param name of the hook, as in its configuration
   * @param type for example the {@code Pod} of fabric8, or Jackson's {@code ObjectNode}
   * @param edit changes objects in place
   * @param options say more about it
   * @return this builder
   * @throws IllegalArgumentException if the name is empty or was added before, or the host has
   *     1,024 hooks
   */
  public <T> HostBuilder mutate(
      String name, Class<T> type, Mutator.Edit<T> edit, HookOption... options) {
    return mutate(name, request -> Mutator.apply(request, type, edit), options);
  }

  /**
   * Adds an initializer, which completes an object before it is created, and before the mutating
   * hooks. It is called again for the same object, as it was before, when the replica that had it
   * is lost.
   *
   * @param <T> the type
   * @param name of the initializer, as in its InitializerConfiguration
   * @param type for example the {@code Pod} of fabric8, or Jackson's {@code ObjectNode}
   * @param edit changes objects in place
   * @param options say more about it
   * @return this builder
   * @throws IllegalArgumentException if the name is empty or was added before, or the host has
   *     1,024 hooks
   */
  public <T> HostBuilder initialize(
      String name, Class<T> type, Mutator.Edit<T> edit, HookOption... options) {
    return initialize(
        name,
        request -> {
          Request.present(request.rawObject());
          return Mutator.apply(request, type, edit);
        },
        options);
  }

  /**
   * Adds an initializer with a handler, which answers as a mutating hook does.
   *
   * @param name of the initializer, as in its InitializerConfiguration
   * @param handler completes objects
   * @param options say more about it
   * @return this builder
   * @throws IllegalArgumentException if the name is empty or was added before, or the host has
   *     1,024 hooks
   */
  public HostBuilder initialize(String name, Handler handler, HookOption... options) {
    return add(new HookId(name, Stage.STAGE_INITIALIZE), handler, options);
  }

  private HostBuilder add(HookId id, Handler handler, HookOption... options) {
    if (id.name().isEmpty() || hooks.containsKey(id) || hooks.size() >= Limits.MAX_HOOKS) {
      throw new IllegalArgumentException(
          String.format(
              "hook \"%s\" has no name, was added before, or is one more than %d",
              id.name(), Limits.MAX_HOOKS));
    }
    Hook hook = new Hook(id, handler, List.of(options));
    hooks.put(id, hook);
    hello.addHooks(
        HookOffer.newBuilder()
            .setName(id.name())
            .setStage(id.stage())
            .setSpeculate(hook.speculates()));
    return this;
  }

  /**
   * Makes the host. It does nothing yet. The builder may make others.
   *
   * @return the host
   * @throws IllegalStateException if hooks, dispatchers or TLS are missing
   */
  public Host build() {
    return new Host(settings());
  }

  Settings settings() {
    if (tls == null) {
      throw new IllegalStateException("the host has no TLS: use Tls.files, or plaintext in tests");
    }
    Hello.Builder own = hello.clone();
    if (own.getInstance().isEmpty()) {
      own.setInstance(newInstance());
    }
    return new Settings(
        own.build(),
        Map.copyOf(hooks),
        dispatchers,
        serverName,
        tls,
        maxOutstanding,
        drainTimeout,
        executor,
        codec,
        resolver,
        openTelemetry == null ? GlobalOpenTelemetry.get() : openTelemetry,
        logger);
  }

  private static int positive(int value, String name) {
    if (value <= 0) {
      throw new IllegalArgumentException(name + " is not positive: " + value);
    }
    return value;
  }

  private static List<String> lookUp(String name) throws UnknownHostException {
    return Arrays.stream(InetAddress.getAllByName(name)).map(InetAddress::getHostAddress).toList();
  }

  /** Names a process: for a person by its machine, and uniquely by chance. */
  private static String newInstance() {
    String suffix = UUID.randomUUID().toString().substring(0, SUFFIX);
    try {
      return InetAddress.getLocalHost().getHostName() + "-" + suffix;
    } catch (UnknownHostException e) {
      return suffix;
    }
  }
}

package dev.portcullis.host;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.OpenTelemetry;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.System.Logger;

/** Says where a {@link StagedClient} finds dispatchers, and as whom. Not for concurrent use. */
public final class StagedClientBuilder {
  private final HostPort address;
  private final HostBuilder host = Host.builder("staged"); // A client is set up as a host is.

  StagedClientBuilder(String address) {
    this.address =
        HostPort.parse(address)
            .orElseThrow(
                () -> new IllegalArgumentException("a dispatcher is host:port, not " + address));
    host.maxFrameBytes(Limits.MAX_LIST_BYTES);
  }

  /**
   * Sets how connections are secured. Required.
   *
   * @param tls {@link Tls#files} with the certificate whose identity the HookRoute grants the
   *     initializer to
   * @return this builder
   */
  public StagedClientBuilder tls(Tls tls) {
    host.tls(tls);
    return this;
  }

  /**
   * Sets the name that the certificate of the dispatcher must carry.
   *
   * @param name empty means that of the address
   * @return this builder
   */
  public StagedClientBuilder serverName(String name) {
    host.serverName(name);
    return this;
  }

  /**
   * Sets on how many objects an initializer may act at a time.
   *
   * @param objects 1 or more; 64 if it is not set
   * @return this builder
   * @throws IllegalArgumentException if it is less
   */
  public StagedClientBuilder maxOutstanding(int objects) {
    host.maxOutstanding(objects);
    return this;
  }

  /**
   * Sets what decodes objects into the types of {@link Initializer#of}.
   *
   * @param codec {@link Codec#jackson()} if it is not set
   * @return this builder
   */
  public StagedClientBuilder codec(Codec codec) {
    host.codec(codec);
    return this;
  }

  /**
   * Sets what looks up the addresses of dispatchers, at each connection.
   *
   * @param resolver {@link java.net.InetAddress#getAllByName} if it is not set
   * @return this builder
   */
  public StagedClientBuilder resolver(Resolver resolver) {
    host.resolver(resolver);
    return this;
  }

  /**
   * Sets what takes the spans and metrics of initializers.
   *
   * @param openTelemetry {@link GlobalOpenTelemetry} if it is not set
   * @return this builder
   */
  public StagedClientBuilder openTelemetry(OpenTelemetry openTelemetry) {
    host.openTelemetry(openTelemetry);
    return this;
  }

  /**
   * Sets what receives what the operator of the controller should know.
   *
   * @param logger the logger "dev.portcullis.host" if it is not set
   * @return this builder
   */
  public StagedClientBuilder logger(Logger logger) {
    host.logger(logger);
    return this;
  }

  /**
   * Makes the client. It connects when it is first used.
   *
   * @return the client
   * @throws IllegalStateException if TLS is missing
   * @throws UncheckedIOException if the files of the TLS cannot be read; later faults of them make
   *     calls fail, and may be corrected while the client is in use
   */
  public StagedClient build() {
    Settings settings = host.settings();
    if (settings.tls() == null) {
      throw new IllegalStateException(
          "the client has no TLS: use Tls.files, or plaintext in tests");
    }
    try {
      Dialer.check(settings);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return new StagedClient(settings, address);
  }
}

package dev.portcullis.host;

import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;

/** Makes connections to one address. */
final class Dialer {
  private Dialer() {}

  /** Returns the channel of a session, which connects when a stream is opened. */
  static ManagedChannel dial(Settings settings, DialPlan.Endpoint at) throws IOException {
    // No keepalive: the dispatcher's pings and the silence that Welcome names are the one clock of
    // a session.
    return builder(settings, at).build();
  }

  /** Whether connections can be secured, so far as that is seen without any. */
  static void check(Settings settings) throws IOException {
    dial(settings, new DialPlan.Endpoint(new HostPort("127.0.0.1", 1), "localhost")).shutdownNow();
  }

  /** Begins a channel without keepalive. */
  static NettyChannelBuilder builder(Settings settings, DialPlan.Endpoint at) throws IOException {
    InetSocketAddress address = new InetSocketAddress(at.address().host(), at.address().port());
    if (address.isUnresolved()) {
      throw new IOException("unknown host " + at.address().host());
    }
    // An address that is given needs no resolver, and no proxy: each is a dispatcher of its own.
    NettyChannelBuilder builder = NettyChannelBuilder.forAddress(address);
    settings.tls().apply(builder);
    return builder
        .overrideAuthority(HostPort.bracketed(at.serverName()))
        // The dispatcher retries: it alone knows which calls may be repeated.
        .disableRetry()
        .disableServiceConfigLookUp()
        // No step of a session blocks, so that the threads of the network may take them.
        .directExecutor()
        // What Hello announces. Verdicts are made to fit what the dispatcher announces in turn.
        .maxInboundMessageSize(Math.max(settings.hello().getMaxFrameBytes(), Limits.MAX_WIRE_BYTES))
        .flowControlWindow(Limits.WINDOW_BYTES)
        .withOption(
            ChannelOption.CONNECT_TIMEOUT_MILLIS,
            (int) TimeUnit.NANOSECONDS.toMillis(Limits.CONNECT_TIMEOUT));
  }
}

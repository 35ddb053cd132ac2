package dev.portcullis.host;

import com.google.common.net.HostAndPort;
import com.google.common.net.InetAddresses;
import java.util.Optional;

/** An address, host:port, in which an IPv6 address stands in brackets. */
record HostPort(String host, int port) {
  /** Reads an address; empty if it is none. */
  static Optional<HostPort> parse(String text) {
    try {
      HostAndPort parsed = HostAndPort.fromString(text);
      return parsed.hasPort() && !parsed.getHost().isEmpty()
          ? Optional.of(new HostPort(parsed.getHost(), parsed.getPort()))
          : Optional.empty();
    } catch (IllegalArgumentException e) {
      return Optional.empty();
    }
  }

  static boolean isIp(String host) {
    return InetAddresses.isInetAddress(host);
  }

  /** The host as it stands in an address. */
  static String bracketed(String host) {
    return host.indexOf(':') < 0 ? host : "[" + host + "]";
  }

  @Override
  public String toString() {
    return bracketed(host) + ":" + port;
  }
}

package dev.portcullis.host;

import java.net.UnknownHostException;
import java.util.List;

/**
 * Looks up the addresses of a name. Each name of a dispatcher has a thread that calls it, every 5 s
 * or more often.
 */
@FunctionalInterface
public interface Resolver {
  /**
   * Returns the IP addresses of a name.
   *
   * @param name a host name or an IP address, which is its own
   * @return IP addresses in their textual form
   * @throws UnknownHostException if there are none; the addresses found before then count
   */
  List<String> resolve(String name) throws UnknownHostException;
}

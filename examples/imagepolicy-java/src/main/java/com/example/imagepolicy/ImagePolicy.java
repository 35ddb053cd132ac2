package com.example.imagepolicy;

import dev.portcullis.host.Host;
import dev.portcullis.host.Tls;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/**
 * A host with two hooks: images are named by digest, and a Pod without a team gets its namespace's.
 * A beginning for hosts of your own.
 */
public final class ImagePolicy {
  private static final String USAGE =
      """
      usage: imagepolicy --dispatchers HOST:PORT[,HOST:PORT...] [FLAG VALUE...]

        --dispatchers  host:port of the dispatchers; each address of a name is one
        --cert         PEM file of our certificate, whose identity the HookRoute names (tls.crt)
        --key          PEM file of its key (tls.key)
        --ca           PEM file of the authorities of the dispatchers (ca.crt)
        --ready-port   port that accepts connections once every hook is in rotation; 0 for none\
      """;

  private ImagePolicy() {}

  /** Serves the hooks until SIGTERM or SIGINT. */
  public static void main(String[] args) throws InterruptedException {
    Map<String, String> flags = new HashMap<>();
    flags.put("--cert", "tls.crt");
    flags.put("--key", "tls.key");
    flags.put("--ca", "ca.crt");
    flags.put("--ready-port", "0");
    for (int i = 0; i + 1 < args.length; i += 2) {
      flags.put(args[i], args[i + 1]);
    }
    if (!flags.containsKey("--dispatchers")) {
      System.err.println(USAGE);
      System.exit(2);
    }
    try {
      serve(flags);
    } catch (IllegalArgumentException | UncheckedIOException e) {
      System.err.println("Error: " + e.getMessage());
      System.exit(1);
    }
  }

  /** Serves the hooks, and the port for probes if there is one. */
  private static void serve(Map<String, String> flags) throws InterruptedException {
    Tls tls =
        Tls.files(
            Path.of(flags.get("--cert")), Path.of(flags.get("--key")), Path.of(flags.get("--ca")));
    Host host =
        Policy.newHost().dispatchers(flags.get("--dispatchers").split(",")).tls(tls).build();
    int readyPort = Integer.parseInt(flags.get("--ready-port"));
    if (readyPort != 0) {
      Thread probes = new Thread(() -> acceptProbes(host, readyPort));
      probes.setDaemon(true);
      probes.start();
    }
    host.run();
  }

  /**
   * Accepts connections once every hook is in rotation. A readiness probe with tcpSocket opens one.
   */
  private static void acceptProbes(Host host, int port) {
    host.ready().join();
    try (ServerSocket probes = new ServerSocket(port)) {
      while (true) {
        probes.accept().close();
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}

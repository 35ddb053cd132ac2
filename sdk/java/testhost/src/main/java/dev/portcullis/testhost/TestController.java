package dev.portcullis.testhost;

import dev.portcullis.host.Initializer;
import dev.portcullis.host.RefusedException;
import dev.portcullis.host.StagedClient;
import dev.portcullis.host.Tls;
import java.nio.file.Path;

/**
 * A controller that initializes staged objects: {@code TestController DISPATCHER CERT KEY CA NAME}.
 * It writes who creates an object into the annotation {@code creator}, and refuses an object with
 * the annotation {@code refuse}.
 */
public final class TestController {
  private TestController() {}

  /**
   * Initializes until the process is asked to end.
   *
   * @param args host:port of dispatchers, three files of TLS, and the name of the initializer
   * @throws InterruptedException never
   */
  public static void main(String[] args) throws InterruptedException {
    Tls tls = Tls.files(Path.of(args[1]), Path.of(args[2]), Path.of(args[3]));
    try (StagedClient client = StagedClient.builder(args[0]).tls(tls).build()) {
      Runtime.getRuntime().addShutdownHook(new Thread(client::close, "close"));
      client.initialize(
          args[4],
          Initializer.ofTree(
              (call, request, object) -> {
                String refusal = object.at("/metadata/annotations/refuse").asText();
                if (!refusal.isEmpty()) {
                  throw new RefusedException(refusal);
                }
                object.withObject("/metadata/annotations").put("creator", request.username());
                return object;
              }));
    }
  }
}

package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.Welcome;
import io.grpc.ServerCredentials;
import io.grpc.Status;
import io.grpc.TlsServerCredentials;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Mutual TLS over real sockets. */
class TlsTest {
  @TempDir @Nullable Path dir;

  private Path file(String name) {
    return Path.of(String.valueOf(dir), name);
  }

  private Tls files() {
    return Tls.files(file("host.crt"), file("host.key"), file("ca.crt"));
  }

  /** A dispatcher with a certificate for a name, which asks hosts for theirs. */
  private ServerCredentials credentials(Authority authority, String name) throws Exception {
    authority.issue(file("server.crt"), file("server.key"), name, "spiffe://mesh/dispatcher");
    return TlsServerCredentials.newBuilder()
        .keyManager(file("server.crt").toFile(), file("server.key").toFile())
        .trustManager(file("ca.crt").toFile())
        .clientAuth(TlsServerCredentials.ClientAuth.REQUIRE)
        .build();
  }

  private static HostBuilder host() {
    return Host.builder("test").validate("a", (call, request) -> Response.allow());
  }

  @Test
  void theFilesAreReadAgainAtEachDialAndTheNameIsChecked() throws Exception {
    Authority authority = new Authority();
    Files.writeString(file("ca.crt"), authority.certificate());
    authority.issue(file("host.crt"), file("host.key"), null, "spiffe://mesh/host");
    try (FakeDispatcher mesh =
            FakeDispatcher.listen(
                Welcome.getDefaultInstance(), credentials(authority, "mesh.example.com"));
        Host host =
            host()
                .dispatchers(mesh.address())
                .serverName("mesh.example.com")
                .tls(files())
                .build()
                .start()) {
      var first = mesh.accept();
      assertTrue(first.ask("a", Requests.create("{}")).getResponse().getAllowed());

      // A key that does not fit is of no use; with one that does the host comes back.
      authority.issue(file("host.crt"), file("other.key"), null, "spiffe://mesh/host");
      Files.writeString(file("host.key"), Files.readString(file("other.key")));
      first.end(Status.UNAUTHENTICATED);
      assertTrue(mesh.accept().ask("a", Requests.create("{}")).getResponse().getAllowed());
      assertEquals(1, host.status().sessions().size());
    }
  }

  @Test
  void aDispatcherOfAnotherNameIsRefused() throws Exception {
    Authority authority = new Authority();
    Files.writeString(file("ca.crt"), authority.certificate());
    authority.issue(file("host.crt"), file("host.key"), null, "spiffe://mesh/host");
    CountDownLatch refused = new CountDownLatch(1);
    try (FakeDispatcher mesh =
            FakeDispatcher.listen(
                Welcome.getDefaultInstance(), credentials(authority, "mesh.example.com"));
        Host host =
            host()
                .dispatchers(mesh.address())
                .serverName("other.example.com")
                .tls(files())
                .logger(new Listening("no session, trying on", refused))
                .build()
                .start()) {
      assertTrue(refused.await(10, TimeUnit.SECONDS), "nothing was logged");
      assertTrue(host.status().sessions().isEmpty());
    }
  }

  @Test
  void filesThatCannotBeReadAreAFaultAtTheStart() throws Exception {
    Files.writeString(file("host.crt"), "nonsense");
    Files.writeString(file("host.key"), "nonsense");
    Files.writeString(file("ca.crt"), "nonsense");
    Host host = host().dispatchers("127.0.0.1:1").tls(files()).build();
    UncheckedIOException e = assertThrows(UncheckedIOException.class, host::start);
    assertTrue(String.valueOf(e.getMessage()).contains("PKCS #8"), String.valueOf(e.getMessage()));
  }
}

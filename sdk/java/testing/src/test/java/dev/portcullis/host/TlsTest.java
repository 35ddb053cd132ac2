package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.Welcome;
import io.grpc.ServerCredentials;
import io.grpc.Status;
import io.grpc.TlsServerCredentials;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.interfaces.ECPrivateKey;
import java.security.spec.ECGenParameterSpec;
import java.time.Instant;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.bouncycastle.asn1.sec.SECObjectIdentifiers;
import org.bouncycastle.openssl.jcajce.JcaPEMWriter;
import org.bouncycastle.openssl.jcajce.JcaPKCS8Generator;
import org.bouncycastle.util.io.pem.PemObject;
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
    return Host.builder("test").validate("a", request -> Response.allow());
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
    assertThrows(UncheckedIOException.class, host::start);
  }

  private static String fault(Authority authority, Authority.Kind kind) throws Exception {
    String pem = authority.issue(kind).certificate();
    X509Certificate certificate =
        (X509Certificate)
            CertificateFactory.getInstance("X.509")
                .generateCertificate(
                    new ByteArrayInputStream(pem.getBytes(StandardCharsets.UTF_8)));
    return Tls.fault(certificate, Instant.now());
  }

  @Test
  void theFaultOfTheOwnCertificateIsNamed() throws Exception {
    Authority authority = new Authority();
    assertEquals("", fault(authority, Authority.Kind.HOST));
    assertTrue(fault(authority, Authority.Kind.ENDED).contains("ended at"));
    assertTrue(fault(authority, Authority.Kind.EARLY).contains("not valid before"));
    assertTrue(fault(authority, Authority.Kind.SERVER).contains("for servers"));
    assertTrue(fault(authority, Authority.Kind.NAMELESS).contains("no identity"));
  }

  @Test
  void aHostThatIsRefusedSaysWhoRefused() throws Exception {
    Authority authority = new Authority();
    Files.writeString(file("ca.crt"), authority.certificate());
    for (boolean own : new boolean[] {true, false}) {
      Tls.Pem pem =
          own ? authority.issue(Authority.Kind.ENDED) : new Authority().issue(Authority.Kind.HOST);
      Tls.Pem trusting = new Tls.Pem(pem.certificate(), pem.key(), authority.certificate());
      CountDownLatch refused = new CountDownLatch(1);
      String want =
          own ? "the certificate of this host ended at" : "the dispatcher refused this host";
      try (FakeDispatcher mesh =
              FakeDispatcher.listen(
                  Welcome.getDefaultInstance(), credentials(authority, "mesh.example.com"));
          Host host =
              host()
                  .dispatchers(mesh.address())
                  .serverName("mesh.example.com")
                  .tls(Tls.from(() -> trusting))
                  .logger(new Listening(want, refused))
                  .build()
                  .start()) {
        assertTrue(refused.await(10, TimeUnit.SECONDS), "nothing was logged of: " + want);
        assertTrue(host.status().sessions().isEmpty());
      }
    }
  }

  private static String pem(Object key) throws Exception {
    StringWriter out = new StringWriter();
    try (JcaPEMWriter writer = new JcaPEMWriter(out)) {
      writer.writeObject(key);
    }
    return out.toString();
  }

  /** A key with the name of its curve, as other tools write it. */
  private static PemObject sec1(ECPrivateKey key) throws IOException {
    var structure =
        new org.bouncycastle.asn1.sec.ECPrivateKey(256, key.getS(), SECObjectIdentifiers.secp256r1);
    return new PemObject("EC PRIVATE KEY", structure.getEncoded());
  }

  @Test
  void keysOfAllUsualFormsAreRead() throws Exception {
    for (String algorithm : new String[] {"RSA", "EC", "Ed25519"}) {
      KeyPairGenerator generator = KeyPairGenerator.getInstance(algorithm);
      if (algorithm.equals("EC")) {
        generator.initialize(new ECGenParameterSpec("secp256r1"));
      }
      if (algorithm.equals("RSA")) {
        generator.initialize(1024); // Longer ones take seconds to find.
      }
      KeyPair keys = generator.generateKeyPair();
      KeyPair others = generator.generateKeyPair();
      String modern = pem(new JcaPKCS8Generator(keys.getPrivate(), null));
      String older = // PKCS #1 or SEC 1
          pem(keys.getPrivate() instanceof ECPrivateKey key ? sec1(key) : keys.getPrivate());
      assertTrue(modern.contains("BEGIN PRIVATE KEY"), modern);
      assertTrue(older.startsWith("-----BEGIN " + algorithm + " ") || algorithm.startsWith("Ed"));
      for (String text : new String[] {modern, "a comment\n" + older}) {
        PrivateKey key = PrivateKeys.read(text);
        assertTrue(PrivateKeys.match(key, keys.getPublic()), algorithm);
        assertFalse(PrivateKeys.match(key, others.getPublic()), algorithm);
      }
    }
    for (String text :
        new String[] {"", "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----"}) {
      assertThrows(IOException.class, () -> PrivateKeys.read(text));
    }
  }
}

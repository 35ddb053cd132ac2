package dev.portcullis.host;

import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * How sessions are secured. It is asked anew at each dial, so that certificates and authorities are
 * replaced without a restart. Sessions that stand are not disturbed.
 */
public final class Tls {
  /**
   * What secures a session, as texts in PEM.
   *
   * @param certificate of the host, its identity to the mesh, with those of intermediate
   *     authorities behind it
   * @param key of the certificate, in PKCS #8, PKCS #1 or SEC 1
   * @param authorities that the certificates of dispatchers are verified by
   */
  public record Pem(String certificate, String key, String authorities) {
    /** Says nothing, since the key is a secret. */
    @Override
    public String toString() {
      return "Pem";
    }
  }

  /** Gives what secures the next session, for example from a vault. */
  @FunctionalInterface
  public interface Source {
    /**
     * Gives the texts as they are now.
     *
     * @return the texts
     * @throws IOException if they cannot be had; the host dials again later
     */
    Pem load() throws IOException;
  }

  private static final String CLIENT_AUTH = "1.3.6.1.5.5.7.3.2";
  private static final String ANY_USAGE = "2.5.29.37.0";

  /** The type of a URI among the names of a certificate. */
  private static final Integer URI = 6;

  private final @Nullable Source source; // null for plaintext

  private Tls(@Nullable Source source) {
    this.source = source;
  }

  /**
   * Secures sessions by TLS 1.3 and files in PEM, as cert-manager writes them.
   *
   * @param certificate of the host, its identity to the mesh, with those of intermediate
   *     authorities behind it
   * @param key of the certificate, in PKCS #8, PKCS #1 or SEC 1
   * @param authorities that the certificates of dispatchers are verified by
   * @return the security
   */
  public static Tls files(Path certificate, Path key, Path authorities) {
    return from(
        () ->
            new Pem(
                Files.readString(certificate),
                Files.readString(key),
                Files.readString(authorities)));
  }

  /**
   * Secures sessions by TLS 1.3 and texts in PEM.
   *
   * @param source gives them at each dial
   * @return the security
   */
  public static Tls from(Source source) {
    return new Tls(source);
  }

  /**
   * Secures nothing: for tests on loopback.
   *
   * @return no security
   */
  public static Tls plaintext() {
    return new Tls(null);
  }

  /** Secures the channels of a builder. */
  void apply(NettyChannelBuilder builder) throws IOException {
    if (source == null) {
      builder.usePlaintext();
      return;
    }
    Pem pem = source.load();
    List<X509Certificate> chain = certificates(pem.certificate(), "the certificate of this host");
    X509Certificate[] authorities =
        certificates(pem.authorities(), "the authorities").toArray(X509Certificate[]::new);
    PrivateKey key = PrivateKeys.read(pem.key());
    if (!PrivateKeys.match(key, chain.get(0).getPublicKey())) {
      throw new IOException("the key of this host is not the one of its certificate");
    }
    builder.sslContext(
        GrpcSslContexts.forClient()
            .protocols("TLSv1.3")
            .keyManager(key, chain.toArray(X509Certificate[]::new))
            .trustManager(authorities)
            .build());
  }

  /**
   * Says who refused whom, where a session was not accepted: the fault of the host's own
   * certificate, or else that the dispatcher refused it. Other errors stay as they are.
   */
  String explain(String error) {
    String own = ownFault();
    if (!own.isEmpty()) {
      return own + ": " + error;
    }
    return error.toLowerCase(Locale.ROOT).contains("alert")
        ? "the dispatcher refused this host: " + error
        : error;
  }

  /** Why no dispatcher accepts the certificate of the host, so far as that is seen from here. */
  private String ownFault() {
    try {
      return source == null
          ? ""
          : fault(certificates(source.load().certificate(), "").get(0), Instant.now());
    } catch (IOException | CertificateException e) {
      return "";
    }
  }

  static String fault(X509Certificate certificate, Instant now) throws CertificateException {
    if (now.isAfter(certificate.getNotAfter().toInstant())) {
      return "the certificate of this host ended at " + certificate.getNotAfter().toInstant();
    }
    if (now.isBefore(certificate.getNotBefore().toInstant())) {
      return "by the clock of this machine, the certificate of this host is not valid before "
          + certificate.getNotBefore().toInstant();
    }
    List<String> usages = certificate.getExtendedKeyUsage();
    if (usages != null && !usages.contains(CLIENT_AUTH) && !usages.contains(ANY_USAGE)) {
      return "the certificate of this host is for servers, not for clients";
    }
    Collection<List<?>> names = certificate.getSubjectAlternativeNames();
    boolean named = names != null && names.stream().anyMatch(name -> URI.equals(name.get(0)));
    return named || certificate.getSubjectX500Principal().getName().contains("CN=")
        ? ""
        : "the certificate of this host has no identity: want a URI";
  }

  private static List<X509Certificate> certificates(String pem, String what) throws IOException {
    try {
      List<X509Certificate> found =
          CertificateFactory.getInstance("X.509")
              .generateCertificates(new ByteArrayInputStream(pem.getBytes(StandardCharsets.UTF_8)))
              .stream()
              .map(X509Certificate.class::cast)
              .toList();
      if (!found.isEmpty()) {
        return found;
      }
    } catch (CertificateException e) {
      throw new IOException(what + " cannot be read: want certificates in PEM", e);
    }
    throw new IOException(what + " cannot be read: want certificates in PEM");
  }
}

package dev.portcullis.host;

import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * How sessions are secured. It is asked anew at each dial, so that certificates and authorities are
 * replaced without a restart. Sessions that stand are not disturbed.
 */
public final class Tls {
  private final Security security;

  private Tls(Security security) {
    this.security = security;
  }

  /**
   * Secures sessions by TLS 1.3 and files in PEM.
   *
   * @param certificate of the host, its identity to the mesh, with those of intermediate
   *     authorities behind it
   * @param key of the certificate, in PKCS #8 ({@code BEGIN PRIVATE KEY}). cert-manager writes it
   *     with {@code privateKey.encoding: PKCS8}
   * @param authorities that the certificates of dispatchers are verified by
   * @return the security
   */
  public static Tls files(Path certificate, Path key, Path authorities) {
    return new Tls(builder -> secure(builder, certificate, key, authorities));
  }

  /**
   * Secures nothing: for tests on loopback.
   *
   * @return no security
   */
  public static Tls plaintext() {
    return new Tls(NettyChannelBuilder::usePlaintext);
  }

  /** Secures the channels of a builder. */
  void apply(NettyChannelBuilder builder) throws IOException {
    security.apply(builder);
  }

  private static void secure(
      NettyChannelBuilder builder, Path certificate, Path key, Path authorities)
      throws IOException {
    try (InputStream cert = Files.newInputStream(certificate);
        InputStream privateKey = Files.newInputStream(key);
        InputStream ca = Files.newInputStream(authorities)) {
      builder.sslContext(
          GrpcSslContexts.forClient()
              .protocols("TLSv1.3")
              .keyManager(cert, privateKey)
              .trustManager(ca)
              .build());
    } catch (IllegalArgumentException e) {
      throw new IOException(
          String.format(
              "the certificate %s, its key %s (in PKCS #8) or the authorities %s cannot be read",
              certificate, key, authorities),
          e);
    }
  }

  @FunctionalInterface
  private interface Security {
    void apply(NettyChannelBuilder builder) throws IOException;
  }
}

package dev.portcullis.host;

import java.io.IOException;
import java.io.StringWriter;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.spec.ECGenParameterSpec;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import org.bouncycastle.asn1.x500.X500Name;
import org.bouncycastle.asn1.x509.BasicConstraints;
import org.bouncycastle.asn1.x509.ExtendedKeyUsage;
import org.bouncycastle.asn1.x509.Extension;
import org.bouncycastle.asn1.x509.GeneralName;
import org.bouncycastle.asn1.x509.GeneralNames;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.bouncycastle.cert.X509CertificateHolder;
import org.bouncycastle.cert.X509v3CertificateBuilder;
import org.bouncycastle.cert.jcajce.JcaX509v3CertificateBuilder;
import org.bouncycastle.openssl.jcajce.JcaPEMWriter;
import org.bouncycastle.openssl.jcajce.JcaPKCS8Generator;
import org.bouncycastle.operator.OperatorCreationException;
import org.bouncycastle.operator.jcajce.JcaContentSignerBuilder;
import org.jspecify.annotations.Nullable;

/** Issues certificates for tests. */
final class Authority {
  private static final X500Name NAME = new X500Name("CN=authority of a test");

  private final KeyPair keys = keys();
  private final String certificate;
  private long serial = 1;

  Authority() throws GeneralSecurityException, IOException, OperatorCreationException {
    X509v3CertificateBuilder builder =
        builder(NAME, keys, 0)
            .addExtension(Extension.basicConstraints, true, new BasicConstraints(true));
    certificate = pem(sign(builder));
  }

  String certificate() {
    return certificate;
  }

  /** What a certificate is good for. */
  enum Kind {
    HOST,
    ENDED,
    EARLY,
    SERVER,
    NAMELESS
  }

  /** Issues a certificate with this authority beside it. */
  Tls.Pem issue(Kind kind) throws GeneralSecurityException, IOException, OperatorCreationException {
    KeyPair own = keys();
    int day = kind == Kind.ENDED ? -2 : kind == Kind.EARLY ? 2 : 0;
    X509v3CertificateBuilder builder =
        builder(new X500Name(kind == Kind.NAMELESS ? "O=none" : "CN=host"), own, day);
    if (kind == Kind.SERVER) {
      builder.addExtension(
          Extension.extendedKeyUsage, false, new ExtendedKeyUsage(KeyPurposeId.id_kp_serverAuth));
    }
    return new Tls.Pem(
        pem(sign(builder)), pem(new JcaPKCS8Generator(own.getPrivate(), null)), certificate);
  }

  /** Writes a certificate for a name and an identity, and its key in PKCS #8. */
  void issue(Path certificateFile, Path keyFile, @Nullable String dns, String uri)
      throws GeneralSecurityException, IOException, OperatorCreationException {
    KeyPair own = keys();
    List<GeneralName> names = new ArrayList<>();
    names.add(new GeneralName(GeneralName.uniformResourceIdentifier, uri));
    if (dns != null) {
      names.add(new GeneralName(GeneralName.dNSName, dns));
    }
    X509v3CertificateBuilder builder =
        builder(new X500Name("CN=" + uri.replace('/', ' ')), own, 0)
            .addExtension(
                Extension.subjectAlternativeName,
                false,
                new GeneralNames(names.toArray(GeneralName[]::new)));
    Files.writeString(certificateFile, pem(sign(builder)));
    Files.writeString(keyFile, pem(new JcaPKCS8Generator(own.getPrivate(), null)));
  }

  private X509v3CertificateBuilder builder(X500Name subject, KeyPair subjectKeys, int day) {
    Instant now = Instant.now().plus(day, ChronoUnit.DAYS);
    return new JcaX509v3CertificateBuilder(
        NAME,
        BigInteger.valueOf(serial++),
        Date.from(now.minus(1, ChronoUnit.HOURS)),
        Date.from(now.plus(1, ChronoUnit.DAYS)),
        subject,
        subjectKeys.getPublic());
  }

  private X509CertificateHolder sign(X509v3CertificateBuilder builder)
      throws OperatorCreationException {
    return builder.build(new JcaContentSignerBuilder("SHA256withECDSA").build(keys.getPrivate()));
  }

  private static KeyPair keys() throws GeneralSecurityException {
    KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
    generator.initialize(new ECGenParameterSpec("secp256r1"));
    return generator.generateKeyPair();
  }

  private static String pem(Object object) throws IOException {
    StringWriter out = new StringWriter();
    try (JcaPEMWriter writer = new JcaPEMWriter(out)) {
      writer.writeObject(object);
    }
    return out.toString();
  }
}

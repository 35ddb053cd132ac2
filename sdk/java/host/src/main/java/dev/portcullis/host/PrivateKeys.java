package dev.portcullis.host;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.InvalidKeyException;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.Signature;
import java.security.SignatureException;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads private keys in PEM: PKCS #8, and the older PKCS #1 (RSA) and SEC 1 (elliptic curves). */
final class PrivateKeys {
  private static final Pattern KEY =
      Pattern.compile(
          "-----BEGIN ((?:RSA |EC )?)PRIVATE KEY-----([^-]*)-----END \\1PRIVATE KEY-----");
  private static final List<String> ALGORITHMS = List.of("EC", "RSA", "Ed25519");

  private static final int INTEGER = 0x02;
  private static final int OCTETS = 0x04;
  private static final int SEQUENCE = 0x30;
  private static final int PARAMETERS = 0xA0;

  /** Version 0, as PKCS #8 begins. */
  private static final byte[] VERSION = der("020100");

  private static final byte[] RSA = der("06092a864886f70d010101" + "0500");
  private static final byte[] EC = der("06072a8648ce3d0201");

  private PrivateKeys() {}

  static PrivateKey read(String pem) throws IOException {
    Matcher matcher = KEY.matcher(pem);
    if (!matcher.find()) {
      throw new IOException("the key of this host cannot be read: want a private key in PEM");
    }
    try {
      byte[] encoded = Base64.getMimeDecoder().decode(matcher.group(2));
      return decode(
          switch (matcher.group(1)) {
            case "RSA " -> wrap(RSA, encoded);
            case "EC " -> wrap(join(EC, curve(encoded)), encoded);
            default -> encoded;
          });
    } catch (IllegalArgumentException | IndexOutOfBoundsException | GeneralSecurityException e) {
      throw new IOException("the key of this host cannot be read", e);
    }
  }

  /** Whether a key is that of a certificate. */
  static boolean match(PrivateKey key, PublicKey certified) throws IOException {
    byte[] text = {1};
    try {
      Signature signature =
          Signature.getInstance(
              switch (key.getAlgorithm()) {
                case "RSA" -> "SHA256withRSA";
                case "EC" -> "SHA256withECDSA";
                default -> key.getAlgorithm();
              });
      signature.initSign(key);
      signature.update(text);
      byte[] signed = signature.sign();
      signature.initVerify(certified);
      signature.update(text);
      return signature.verify(signed);
    } catch (InvalidKeyException | SignatureException e) {
      return false; // They are not even of one algorithm.
    } catch (GeneralSecurityException e) {
      throw new IOException("the key of this host cannot be used", e);
    }
  }

  private static PrivateKey decode(byte[] pkcs8) throws GeneralSecurityException {
    InvalidKeySpecException last = new InvalidKeySpecException();
    for (String algorithm : ALGORITHMS) {
      try {
        return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(pkcs8));
      } catch (InvalidKeySpecException e) {
        last = e; // It is of another algorithm.
      }
    }
    throw last;
  }

  private static byte[] wrap(byte[] algorithm, byte[] key) {
    return element(
        SEQUENCE, join(join(VERSION, element(SEQUENCE, algorithm)), element(OCTETS, key)));
  }

  /** The name of the curve in a key of SEC 1: behind a version and the number. */
  private static byte[] curve(byte[] key) throws InvalidKeySpecException {
    int at = content(key, 0, SEQUENCE);
    at = end(key, at, INTEGER);
    at = end(key, at, OCTETS);
    return Arrays.copyOfRange(key, content(key, at, PARAMETERS), end(key, at, PARAMETERS));
  }

  private static int content(byte[] der, int at, int tag) throws InvalidKeySpecException {
    if ((der[at] & 0xFF) != tag) {
      throw new InvalidKeySpecException("the key does not name its curve");
    }
    return at + 2 + (der[at + 1] < 0 ? der[at + 1] & 0x7F : 0);
  }

  private static int end(byte[] der, int at, int tag) throws InvalidKeySpecException {
    int content = content(der, at, tag);
    int length = der[at + 1] & 0xFF;
    for (int i = at + 2; i < content; i++) {
      length = (i == at + 2 ? 0 : length << 8) | (der[i] & 0xFF);
    }
    return content + length;
  }

  private static byte[] element(int tag, byte[] content) {
    int size = content.length;
    byte[] head =
        size < 0x80
            ? new byte[] {(byte) tag, (byte) size}
            : new byte[] {(byte) tag, (byte) 0x82, (byte) (size >> 8), (byte) size};
    return join(head, content);
  }

  private static byte[] join(byte[] first, byte[] second) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.writeBytes(first);
    out.writeBytes(second);
    return out.toByteArray();
  }

  private static byte[] der(String hex) {
    return HexFormat.of().parseHex(hex);
  }
}

package dev.portcullis.host;

import java.nio.file.Path;

/** Files of the repository that the tests of all SDKs read. */
final class Repository {
  private Repository() {}

  static Path path(String inRepository) {
    return Path.of(System.getProperty("repository", "../../.."), inRepository);
  }
}

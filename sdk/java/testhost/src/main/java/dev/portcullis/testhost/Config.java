package dev.portcullis.testhost;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The file that the program is started with. An empty text, an empty list and 0 mean the default of
 * the SDK.
 */
record Config(
    String name,
    String instance,
    String zone,
    List<String> clusters,
    List<String> dispatchers,
    String serverName,
    @Nullable Files tls,
    int maxOutstanding,
    int maxFrameBytes,
    int drainTimeoutMs,
    List<String> validate,
    List<String> mutate,
    List<String> initialize,
    List<String> speculate,
    List<String> unready) {
  /** Files in PEM. */
  record Files(String cert, String key, String ca) {}
}

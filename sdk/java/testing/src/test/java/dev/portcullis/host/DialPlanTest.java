package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.portcullis.host.v1.Peer;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/**
 * Plays the story of hostsdk/testdata/dial_plan.txt: which dispatchers a host dials as it learns of
 * them.
 */
class DialPlanTest {
  private final Map<String, DialPlan.Endpoint> first = new HashMap<>(); // of each loop
  private DialPlan plan = new DialPlan(List.of(), "");

  @Test
  void theStoryIsPlayed() throws IOException {
    String story = Files.readString(Repository.path("hostsdk/testdata/dial_plan.txt"));
    int played = 0;
    for (String scene : story.split("\n\n", -1)) {
      List<String> lines = scene.lines().filter(line -> !line.startsWith("#")).toList();
      int rule = lines.indexOf("----");
      if (rule < 0) {
        continue;
      }
      String expected = String.join("\n", lines.subList(rule + 1, lines.size()));
      assertEquals(expected, play(lines.subList(0, rule)), scene);
      played++;
    }
    assertTrue(played > 20, "only " + played + " steps were played");
  }

  private String play(List<String> input) {
    List<String> words = Arrays.asList(input.get(0).split("[ (),]+"));
    String key = words.get(1).replace('_', ' ');
    DialPlan.Endpoint at = first.getOrDefault(key, new DialPlan.Endpoint(new HostPort("", 0), ""));
    return switch (words.get(0)) {
      case "plan" -> begin(words);
      case "resolve" ->
          describe(plan.resolved(address(key), List.copyOf(words.subList(3, words.size()))));
      case "welcomed" ->
          describe(plan.welcomed(key, at, words.get(2).substring("id=".length()), peers(input)));
      case "leaving" -> describe(plan.leaving(key, at, peers(input)));
      case "ended" -> describe(plan.ended(key));
      case "gone" -> describe(plan.gone(key));
      default -> throw new IllegalArgumentException(words.get(0));
    };
  }

  private String begin(List<String> words) {
    List<HostPort> names = new ArrayList<>();
    String tls = "";
    for (String word : words.subList(1, words.size())) {
      if (word.startsWith("tls=")) {
        tls = word.substring("tls=".length());
      } else {
        names.add(address(word));
      }
    }
    plan = new DialPlan(names, tls);
    first.clear();
    return "";
  }

  private static HostPort address(String text) {
    return HostPort.parse(text).orElseThrow();
  }

  private static List<Peer> peers(List<String> input) {
    List<Peer> peers = new ArrayList<>();
    for (String line : input.subList(1, input.size())) {
      List<String> words = Arrays.asList(line.split(" "));
      peers.add(
          Peer.newBuilder()
              .setDispatcherId(words.get(0))
              .addAllAddresses(words.subList(1, words.size()))
              .build());
    }
    return peers;
  }

  private String describe(DialPlan.Changes changes) {
    List<String> out = new ArrayList<>();
    changes.stop().forEach(key -> out.add("stop " + key));
    for (DialPlan.Target target : changes.start()) {
      first.put(target.key(), target.endpoints().get(0));
      StringBuilder line = new StringBuilder("start " + target.key());
      target
          .endpoints()
          .forEach(e -> line.append(' ').append(e.address()).append(" as ").append(e.serverName()));
      long seconds = TimeUnit.NANOSECONDS.toSeconds(target.delay());
      out.add(line.append(" after ").append(seconds).append('s').toString());
    }
    out.add("loops: " + String.join("; ", plan.describe()));
    return String.join("\n", out);
  }

  @Test
  void aDispatcherThatNamesPeersWithoutEndCostsABoundedNumberOfDials() {
    HostPort name = new HostPort("mesh", 1);
    DialPlan bounded = new DialPlan(List.of(name), "");
    bounded.resolved(name, List.of("10.0.0.1"));
    List<Peer> peers =
        IntStream.range(0, 1000)
            .mapToObj(
                i ->
                    Peer.newBuilder()
                        .setDispatcherId("d" + i)
                        .addAddresses("10.1." + i / 256 + "." + i % 256 + ":1")
                        .build())
            .toList();
    DialPlan.Endpoint at = new DialPlan.Endpoint(new HostPort("10.0.0.1", 1), "mesh");
    bounded.welcomed("10.0.0.1:1", at, "d", peers);
    assertEquals(Limits.MAX_TARGETS, bounded.describe().size());

    bounded.resolved(name, List.of());
    bounded.ended("10.0.0.1:1");
    bounded.describe().forEach(loop -> bounded.gone(loop.replaceFirst(" \\(.*", "")));
    assertEquals(0, bounded.size());
  }
}

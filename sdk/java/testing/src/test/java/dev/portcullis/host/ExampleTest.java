package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import dev.portcullis.host.testing.Case;
import dev.portcullis.host.testing.FakeDispatcher;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The programs of README.md that are whole, and tables of cases. */
class ExampleTest {
  private static final Pattern PROGRAM =
      Pattern.compile(
          "^```java\\n(import .*?\\bclass (\\w+) .*?)^```$", Pattern.MULTILINE | Pattern.DOTALL);

  private static final Pattern TABLE =
      Pattern.compile("^```yaml\\n(.*?)^```$", Pattern.MULTILINE | Pattern.DOTALL);

  private static void compile(Path classes, List<Path> sources) throws Exception {
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    StringWriter said = new StringWriter();
    try (StandardJavaFileManager files = compiler.getStandardFileManager(null, null, null)) {
      List<String> options = List.of("-d", classes.toString(), "-proc:none");
      boolean compiled =
          compiler
              .getTask(said, files, null, options, null, files.getJavaFileObjectsFromPaths(sources))
              .call();
      assertTrue(compiled, said.toString());
    }
  }

  /** Plays a table against the hooks of a compiled class. */
  private static void play(Path classes, String name, Path table) throws Exception {
    try (URLClassLoader loader = new URLClassLoader(new URL[] {classes.toUri().toURL()})) {
      Method newHost = loader.loadClass(name).getDeclaredMethod("newHost");
      newHost.setAccessible(true);
      try (FakeDispatcher mesh = FakeDispatcher.serving((HostBuilder) newHost.invoke(null))) {
        List<Case> cases = Case.read(table);
        assertTrue(cases.size() > 1, "there are cases");
        cases.forEach(each -> each.check(mesh));
      }
    }
  }

  @Test
  void theProgramsOfTheReadmeCompileAndDecideItsTable(@TempDir Path dir) throws Exception {
    String readme = Files.readString(Repository.path("sdk/java/README.md"));
    List<Path> sources = new ArrayList<>();
    Matcher programs = PROGRAM.matcher(readme);
    while (programs.find()) {
      Path source = dir.resolve(programs.group(2) + ".java");
      sources.add(Files.writeString(source, programs.group(1)));
    }
    assertEquals(2, sources.size());
    compile(dir, sources);
    Matcher table = TABLE.matcher(readme);
    assertTrue(table.find(), "there is a table");
    play(dir, "Policy", Files.writeString(dir.resolve("cases.yaml"), table.group(1)));
  }

  @Test
  void aCaseOfAnotherVerdictFails(@TempDir Path dir) throws Exception {
    String pod = "  object: {kind: Pod, metadata: {namespace: shop}}\n";
    List<String> wrong =
        List.of(
            "allowed: true",
            "allowed: false, code: 422",
            "allowed: false, reason: Invalid",
            "allowed: false, message: other",
            "allowed: false, causes: []",
            "allowed: false, causes: [{field: f, message: other}]",
            "allowed: false, warnings: []",
            "allowed: false, audit: {}",
            "allowed: false, object: {}",
            "allowed: false, patch: [{}]");
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            Host.builder("test")
                .validate(
                    "v",
                    JsonNode.class,
                    (object, request) ->
                        Response.deny("no " + request.username() + request.groups())
                            .cause("f", "m")
                            .warnings("w")
                            .audit("k", request.operation() + request.namespace())))) {
      Path file = dir.resolve("cases.yaml");
      String right =
          "- name: n\n  user: {name: jane, groups: [dev]}\n  namespace: other\n  oldObject: {}\n"
              + "  operation: UPDATE\n"
              + pod
              + "  expect: {allowed: false, code: 403, message: 'jane[dev]', warnings: [w],"
              + " reason: Forbidden, causes: [{field: f, message: m}],"
              + " audit: {k: UPDATEother}}\n";
      Case.read(Files.writeString(file, right)).get(0).check(mesh);
      for (String expect : wrong) {
        Files.writeString(file, "- name: n\n" + pod + "  expect: {" + expect + "}\n");
        Case one = Case.read(file).get(0);
        assertThrows(AssertionError.class, () -> one.check(mesh), expect);
      }
      Files.writeString(file, "- name: n\n" + pod + "  expects: {allowed: true}\n");
      assertThrows(UncheckedIOException.class, () -> Case.read(file));
    }
  }
}

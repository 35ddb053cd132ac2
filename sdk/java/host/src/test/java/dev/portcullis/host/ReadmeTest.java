package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.StringWriter;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The programs of README.md that are whole. */
class ReadmeTest {
  private static final Pattern PROGRAM =
      Pattern.compile(
          "^```java\\n(import .*?\\bclass (\\w+) .*?)^```$", Pattern.MULTILINE | Pattern.DOTALL);

  /** A source file that is in memory. */
  private static final class Source extends SimpleJavaFileObject {
    private final String text;

    Source(String name, String text) {
      super(URI.create("readme:///" + name + ".java"), Kind.SOURCE);
      this.text = text;
    }

    @Override
    public CharSequence getCharContent(boolean ignoreEncodingErrors) {
      return text;
    }
  }

  @Test
  void theyCompile(@TempDir Path classes) throws Exception {
    List<JavaFileObject> sources = new ArrayList<>();
    Matcher programs = PROGRAM.matcher(Files.readString(Repository.path("sdk/java/README.md")));
    while (programs.find()) {
      sources.add(new Source(programs.group(2), programs.group(1)));
    }
    assertEquals(1, sources.size());
    StringWriter said = new StringWriter();
    JavaCompiler.CompilationTask task =
        ToolProvider.getSystemJavaCompiler()
            .getTask(
                said, null, null, List.of("-d", classes.toString(), "-proc:none"), null, sources);
    assertEquals(true, task.call(), said.toString());
  }
}

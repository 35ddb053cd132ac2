package installed;

import dev.portcullis.host.Host;
import dev.portcullis.host.HostBuilder;
import dev.portcullis.host.Response;
import dev.portcullis.host.testing.Case;
import dev.portcullis.host.testing.FakeDispatcher;
import java.nio.file.Path;

/** Plays a table of cases: {@code Main cases.yaml}. */
public final class Main {
  public static void main(String[] args) {
    try (FakeDispatcher mesh = FakeDispatcher.serving(host())) {
      Case.read(Path.of(args[0])).forEach(c -> c.check(mesh));
    }
  }

  private static HostBuilder host() {
    return Host.builder("installed")
        .mutate(
            "team.example.com",
            request ->
                Response.change(
                    request,
                    pod -> pod.withObject("/metadata/labels").put("team", request.namespace())));
  }
}

package dev.portcullis.host;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The registration for a name and stage.
 *
 * @param readiness null if it is ready at once
 */
record Hook(
    HookId id,
    Handler handler,
    boolean speculates,
    @Nullable Readiness readiness,
    Complaints complaints) {
  Hook(HookId id, Handler handler, List<HookOption> options) {
    this(
        id,
        handler,
        options.contains(HookOption.speculate()),
        options.stream()
            .map(HookOption::readiness)
            .filter(readiness -> readiness != null)
            .reduce(null, (first, last) -> last),
        new Complaints());
  }
}

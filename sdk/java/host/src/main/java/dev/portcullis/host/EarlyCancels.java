package dev.portcullis.host;

import dev.portcullis.host.v1.Cancel;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/** Cancellations that came before their reviews, in bounded number. It is pure. */
final class EarlyCancels {
  private record Early(Cancel cancel, long at) {
    /** Counts the cancellation and each hook that it names. */
    int size() {
      return 1 + cancel.getHookIndexesCount();
    }
  }

  private final ArrayDeque<Early> list = new ArrayDeque<>(); // oldest first
  private int size;

  /**
   * Adds a cancellation, and forgets those from before a time. At the bound it forgets the oldest:
   * their handlers run to their deadlines.
   */
  void remember(long now, long before, Cancel cancel) {
    forget(before);
    Early added = new Early(cancel, now);
    if (added.size() > Limits.MAX_EARLY_CANCELS) {
      return;
    }
    while (size + added.size() > Limits.MAX_EARLY_CANCELS) {
      removeOldest();
    }
    list.add(added);
    size += added.size();
  }

  /** Removes the cancellations of a call, and returns those from after a time. */
  List<Cancel> take(long before, long call) {
    forget(before);
    if (list.isEmpty()) {
      return List.of();
    }
    List<Cancel> of = new ArrayList<>();
    for (Iterator<Early> all = list.iterator(); all.hasNext(); ) {
      Early one = all.next();
      if (one.cancel().getCallId() == call) {
        of.add(one.cancel());
        size -= one.size();
        all.remove();
      }
    }
    return of;
  }

  /** Whether one of several cancellations names a hook. */
  static boolean name(List<Cancel> cancels, int hook) {
    return cancels.stream()
        .anyMatch(c -> c.getHookIndexesCount() == 0 || c.getHookIndexesList().contains(hook));
  }

  private void forget(long before) {
    while (!list.isEmpty() && list.peekFirst().at() < before) {
      removeOldest();
    }
  }

  private void removeOldest() {
    size -= list.removeFirst().size();
  }
}

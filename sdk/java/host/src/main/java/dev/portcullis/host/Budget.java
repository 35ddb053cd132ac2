package dev.portcullis.host;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * Divides the calls that a host takes at a time over its sessions. While shares change their sum
 * may exceed the total; the calls beyond it wait for a slot. Safe for concurrent use.
 */
final class Budget {
  private final int total;
  private final Set<Runnable> members = new LinkedHashSet<>(); // guarded by this

  Budget(int total) {
    this.total = total;
  }

  /**
   * Adds a member, which is run outside of locks when its share may have changed by another one.
   */
  void add(Runnable member) {
    synchronized (this) {
      members.add(member);
    }
    tell(member);
  }

  /** Removes a member, which gets no new calls. A second time does nothing. */
  void remove(Runnable member) {
    synchronized (this) {
      if (!members.remove(member)) {
        return;
      }
    }
    tell(member);
  }

  /** How many calls each session may take now; at least 1. */
  synchronized int share() {
    return Math.max(1, total / Math.max(1, members.size()));
  }

  private void tell(Runnable exceptMember) {
    List<Runnable> others;
    synchronized (this) {
      others = new ArrayList<>(members);
    }
    others.remove(exceptMember);
    others.forEach(Runnable::run);
  }
}

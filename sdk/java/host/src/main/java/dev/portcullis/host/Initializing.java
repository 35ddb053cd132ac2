package dev.portcullis.host;

import com.fasterxml.jackson.databind.JsonNode;
import dev.portcullis.admission.v1.AdmissionRequest;
import dev.portcullis.admission.v1.AdmissionResponse;
import dev.portcullis.admission.v1.Stage;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Review;
import dev.portcullis.initializer.v1.ListRequest;
import dev.portcullis.initializer.v1.StagedObject;
import dev.portcullis.initializer.v1.UpdateRequest;
import dev.portcullis.initializer.v1.WatchRequest;
import dev.portcullis.initializer.v1.WatchResponse;
import io.fabric8.zjsonpatch.JsonPatch;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.System.Logger.Level;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * An initializer that runs over the staged objects of a client. One thread reads what waits, and
 * each object has a thread and a slot while the initializer acts on it. Without a free slot nothing
 * is read: a dispatcher ends the watch of a reader that is too slow, and the next one begins with
 * all that waits then.
 */
final class Initializing {
  private final StagedClient client;
  private final Settings settings;
  private final Hook hook;
  private final Semaphore slots;
  private final HandlerPool pool;
  private final ExecutorService workers =
      Executors.newCachedThreadPool(Threads.factory("portcullis-staged"));
  private final ScheduledThreadPoolExecutor timer =
      new ScheduledThreadPoolExecutor(1, Threads.factory("portcullis-staged-timer"));
  private final Complaints complaints = new Complaints();
  private final CountDownLatch stopped = new CountDownLatch(1);
  private final Map<String, StagedObject> busy = new ConcurrentHashMap<>(); // as shown last, by uid
  private final Set<Invocation> running = ConcurrentHashMap.newKeySet();

  Initializing(StagedClient client, Settings settings, String name, Handler handler) {
    if (name.isEmpty()) {
      throw new IllegalArgumentException("the initializer has no name");
    }
    this.client = client;
    this.settings = settings;
    HookId id = new HookId(name, Stage.STAGE_INITIALIZE);
    hook = new Hook(id, handler, HookOptions.DEFAULTS, new Complaints());
    slots = new Semaphore(settings.maxOutstanding(), true);
    // A handler runs on the thread that asks it, which has a slot already.
    pool = new HandlerPool(settings, Runnable::run, workers, System::nanoTime);
    timer.setRemoveOnCancelPolicy(true);
  }

  /** Runs until it is stopped, or this thread is interrupted. */
  void run() throws InterruptedException {
    ListRequest mine = ListRequest.newBuilder().setFirstPending(hook.id().name()).build();
    WatchRequest request = WatchRequest.newBuilder().setSelection(mine).build();
    // A grant that is missing may come: only the end of the client ends this watch.
    try (StagedWatch events = new StagedWatch(client, request, Set.of())) {
      for (WatchResponse event : events) {
        StagedObject shown = event.getObject();
        if (Staged.waits(event) && busy.put(shown.getUid(), shown) == null) {
          slots.acquire();
          workers.execute(() -> work(shown));
        }
      }
    } finally {
      finish();
    }
    if (Thread.interrupted()) {
      throw new InterruptedException();
    }
  }

  /** Interrupts what runs, and begins no more. */
  void stop() {
    stopped.countDown();
    running.forEach(invocation -> end(invocation, Invocation.End.SESSION_LOST));
  }

  /** Stops, and waits a while for the initializers to return. An interrupt stays set. */
  private void finish() throws InterruptedException {
    boolean interrupted = Thread.interrupted();
    stop();
    timer.shutdownNow();
    workers.shutdown();
    boolean unused = workers.awaitTermination(Limits.HANDLER_GRACE, TimeUnit.NANOSECONDS);
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Works on an object for as long as it is shown, and gives back the slot. */
  private void work(StagedObject first) {
    StagedObject shown = first;
    initialize(first, first);
    // Another initializer may have had this one wait again before it was done with.
    while (!busy.remove(first.getUid(), shown)) {
      shown = busy.getOrDefault(first.getUid(), shown);
      initialize(shown, null);
    }
    slots.release();
  }

  /**
   * Works on an object until it does not wait any more.
   *
   * @param shown names the object
   * @param now the object; null if it has to be read first
   */
  private void initialize(StagedObject shown, @Nullable StagedObject now) {
    StagedObject staged = now;
    long until = until(shown);
    for (int failures = 0; !stopping() && System.nanoTime() - until < 0; ) {
      try {
        if (staged == null) {
          staged = client.get(shown.getKey());
          until = until(staged);
        }
        if (!waits(staged, shown.getUid()) || act(staged, until)) {
          return;
        }
      } catch (ConflictException e) {
        staged = null;
        continue;
      } catch (RuntimeException e) {
        if (stopping() || isGone(e)) {
          return;
        }
        complain(shown, e);
      }
      staged = null;
      rest(failures++);
    }
  }

  /** Has the initializer act on an object once; false if it has failed. */
  private boolean act(StagedObject staged, long until) {
    AdmissionResponse response = ask(staged, until);
    if (response == null) {
      return false;
    }
    StagedObject unused = client.update(update(staged, response));
    return true;
  }

  /** The answer of the initializer; null if it has failed, which is logged. */
  private @Nullable AdmissionResponse ask(StagedObject staged, long until) {
    AtomicReference<@Nullable AdmissionResponse> response = new AtomicReference<>();
    long now = System.nanoTime();
    Invocation invocation = new Invocation(review(staged), 0, hook, now, until);
    Future<?> timeout =
        timer.schedule(
            () -> end(invocation, Invocation.End.DEADLINE), until - now, TimeUnit.NANOSECONDS);
    running.add(invocation);
    try {
      if (!stopping()) { // Afterwards nobody would end it.
        pool.submit(
            invocation,
            (i, verdict) -> response.set(verdict.hasResponse() ? verdict.getResponse() : null));
      }
    } finally {
      running.remove(invocation);
      timeout.cancel(false);
    }
    return response.get();
  }

  private void end(Invocation invocation, Invocation.End why) {
    pool.stop(invocation, why, (i, outcome) -> {});
  }

  /** Waits longer after each failure. Other objects have the slot meanwhile. */
  private void rest(int failures) {
    slots.release();
    try {
      long wait = ConnLoop.backoff(failures, ThreadLocalRandom.current().nextDouble());
      boolean unused = stopped.await(wait, TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt(); // Nobody does so.
    } finally {
      slots.acquireUninterruptibly();
    }
  }

  private boolean stopping() {
    return stopped.getCount() == 0;
  }

  private boolean waits(StagedObject staged, String uid) {
    return staged.getUid().equals(uid)
        && !staged.hasResult()
        && staged.getPendingCount() > 0
        && staged.getPending(0).equals(hook.id().name());
  }

  private void complain(StagedObject staged, RuntimeException thrown) {
    int unlogged = complaints.allow(System.nanoTime());
    if (unlogged >= 0) {
      String text =
          String.format(
              "a staged object was not initialized, trying on: initializer=%s cluster=%s uid=%s"
                  + " unlogged=%d",
              hook.id().name(), staged.getKey().getCluster(), staged.getUid(), unlogged);
      settings.logger().log(Level.WARNING, text, thrown);
    }
  }

  private static boolean isGone(RuntimeException thrown) {
    return thrown instanceof StatusRuntimeException e && e.getStatus().getCode() == Code.NOT_FOUND;
  }

  /** When the hold of an object ends that has just been read. */
  private static long until(StagedObject staged) {
    return System.nanoTime()
        + TimeUnit.MILLISECONDS.toNanos(Integer.toUnsignedLong(staged.getRemainingMs()));
  }

  /** The review that a dispatcher would have sent to a host. */
  private Review review(StagedObject staged) {
    AdmissionRequest.Builder request =
        AdmissionRequest.newBuilder()
            .setUid(staged.getReviewUid())
            .setCluster(staged.getKey().getCluster())
            .setKind(staged.getKind())
            .setRequestKind(staged.getKind())
            .setResource(staged.getKey().getResource())
            .setRequestResource(staged.getKey().getResource())
            .setNamespace(staged.getKey().getNamespace())
            .setName(staged.getKey().getName())
            .setOperation("CREATE")
            .setUserInfo(staged.getCreator());
    if (staged.hasObject()) {
      request.setObject(staged.getObject());
    }
    return Review.newBuilder()
        .addHooks(
            HookCall.newBuilder()
                .setName(hook.id().name())
                .setStage(hook.id().stage())
                .setRemainingMs(staged.getRemainingMs()))
        .setRequest(request)
        .build();
  }

  private static UpdateRequest update(StagedObject staged, AdmissionResponse response) {
    if (!response.getAllowed()) {
      return Staged.refused(staged, response.getStatus());
    }
    if (response.getPatch().isEmpty()) {
      return Staged.unchanged(staged);
    }
    try {
      JsonNode patch = Json.read(response.getPatch());
      return Staged.done(staged, JsonPatch.apply(patch, Staged.objectOf(staged)));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}

package dev.portcullis.host;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.System.Logger.Level;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledThreadPoolExecutor;

/**
 * Serves hooks on a session to every dispatcher. {@link #builder} makes one, {@link #run} or {@link
 * #start} runs it, once. All methods may be called from any thread.
 */
public final class Host implements AutoCloseable {
  private final Settings settings;
  private final Board board;
  private final ScheduledThreadPoolExecutor timer;
  private final ExecutorService workers;
  private final Machinery machinery;
  private final ConnManager manager;
  private final CountDownLatch ended = new CountDownLatch(1);

  // Guarded by this.
  private boolean started;
  private boolean draining;
  private boolean clean = true; // no call was cut off

  Host(Settings settings) {
    this.settings = settings;
    board = new Board(settings.hooks().keySet(), settings.logger());
    timer = new ScheduledThreadPoolExecutor(1, Threads.factory("portcullis-timer"));
    timer.setRemoveOnCancelPolicy(true);
    workers = Executors.newCachedThreadPool(Threads.factory("portcullis-worker"));
    Executor executor = settings.executor() == null ? workers : settings.executor();
    long origin = System.nanoTime();
    machinery =
        new Machinery(
            () -> System.nanoTime() - origin,
            timer,
            workers,
            new HandlerPool(settings, executor, workers, () -> System.nanoTime() - origin),
            new Budget(settings.maxOutstanding()));
    manager = new ConnManager(settings, machinery, board);
  }

  /**
   * Begins a host.
   *
   * @param name of the program, for example "imagepolicy"; the same for all replicas
   * @return its builder
   */
  public static HostBuilder builder(String name) {
    return new HostBuilder(name);
  }

  /**
   * Starts to serve, and returns. Sessions that are lost or refused are logged and dialled again
   * until the host drains.
   *
   * @return this host
   * @throws IllegalStateException if the host was started before
   * @throws UncheckedIOException if the files of the TLS cannot be read; later faults of them are
   *     logged, and may be corrected while the host runs
   */
  public synchronized Host start() {
    if (started || draining) {
      throw new IllegalStateException("a host is started once");
    }
    try {
      Dialer.check(settings);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    started = true;
    manager.start();
    Threads.start("portcullis-host", this::awaitSessions);
    return this;
  }

  /**
   * Starts, serves until the process is asked to end (SIGTERM, SIGINT), drains, and returns. The
   * process lives until the host has drained. The exit code of a JVM that a signal ends is 128 and
   * the number of the signal.
   *
   * @return false if calls were cut off, as for {@link #awaitTermination}
   * @throws IllegalStateException as for {@link #start}
   * @throws UncheckedIOException as for {@link #start}
   * @throws InterruptedException if this thread is interrupted; the host runs on
   */
  public boolean run() throws InterruptedException {
    start();
    Thread atExit = new Thread(this::close, "portcullis-drain");
    Runtime.getRuntime().addShutdownHook(atExit);
    boolean clean = awaitTermination();
    try {
      Runtime.getRuntime().removeShutdownHook(atExit);
    } catch (IllegalStateException e) {
      return clean; // The process ends, which is why the host has drained.
    }
    return clean;
  }

  /**
   * Announces that the host takes no new calls, and returns. The calls in flight finish within the
   * drain timeout. Later calls do nothing.
   */
  public void drain() {
    synchronized (this) {
      if (draining) {
        return;
      }
      draining = true;
      if (!started) {
        end();
        return;
      }
    }
    manager.drain();
  }

  /**
   * Waits until the host has drained.
   *
   * @return false if handlers were cut off: they did not return in the drain timeout, or 1 s after
   *     the end of their calls
   * @throws InterruptedException if this thread is interrupted meanwhile
   */
  public boolean awaitTermination() throws InterruptedException {
    ended.await();
    synchronized (this) {
      return clean;
    }
  }

  /** Drains the host and waits until it has. An interrupt ends the waiting alone. */
  @Override
  public void close() {
    drain();
    try {
      awaitTermination();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /**
   * Is completed once every hook is in rotation with at least one dispatcher. A readiness probe of
   * the Pod on it keeps a rollout from replacing good replicas by ones that the mesh does not ask.
   *
   * @return a future that is never completed exceptionally
   */
  public CompletableFuture<Void> ready() {
    return board.ready().copy();
  }

  /**
   * How the host stands with its dispatchers now.
   *
   * @return the state of its sessions
   */
  public Status status() {
    return board.status();
  }

  private void awaitSessions() {
    boolean drained = false;
    try {
      boolean finished = manager.awaitEnd();
      drained = machinery.pool().awaitIdle(Limits.HANDLER_GRACE) && finished;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt(); // Nobody does so.
    }
    settings.logger().log(Level.INFO, "host stopped: drained=" + drained);
    synchronized (this) {
      clean = drained;
      end();
    }
  }

  private void end() {
    timer.shutdownNow();
    workers.shutdown();
    ended.countDown();
  }
}

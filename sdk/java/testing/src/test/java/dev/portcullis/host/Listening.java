package dev.portcullis.host;

import java.util.ResourceBundle;
import java.util.concurrent.CountDownLatch;
import org.jspecify.annotations.Nullable;

/** Waits for a line of the log. */
record Listening(String text, CountDownLatch heard) implements System.Logger {
  @Override
  public String getName() {
    return "test";
  }

  @Override
  public boolean isLoggable(Level level) {
    return true;
  }

  @Override
  public void log(
      Level level,
      @Nullable ResourceBundle bundle,
      @Nullable String message,
      @Nullable Throwable thrown) {
    hear(message);
  }

  @Override
  public void log(
      Level level,
      @Nullable ResourceBundle bundle,
      @Nullable String format,
      Object @Nullable ... params) {
    hear(format);
  }

  private void hear(@Nullable String message) {
    if (message != null && message.contains(text)) {
      heard.countDown();
    }
  }
}

package dev.portcullis.host;

import dev.portcullis.admission.v1.Stage;

/** A hook: its name and its stage. */
record HookId(String name, Stage stage) {
  /** The stage as people write it. */
  static String stageName(Stage stage) {
    return switch (stage) {
      case STAGE_MUTATE -> "mutate";
      case STAGE_VALIDATE -> "validate";
      default -> stage.name();
    };
  }
}

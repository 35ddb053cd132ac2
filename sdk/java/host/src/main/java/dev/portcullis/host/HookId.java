package dev.portcullis.host;

import dev.portcullis.admission.v1.Stage;
import java.util.List;

/** A hook: its name and its stage. */
record HookId(String name, Stage stage) {
  /** The stages that a hook can belong to. */
  static final List<Stage> STAGES =
      List.of(Stage.STAGE_INITIALIZE, Stage.STAGE_MUTATE, Stage.STAGE_VALIDATE);

  /** The stage as people write it. */
  static String stageName(Stage stage) {
    return switch (stage) {
      case STAGE_INITIALIZE -> "initialize";
      case STAGE_MUTATE -> "mutate";
      case STAGE_VALIDATE -> "validate";
      default -> stage.name();
    };
  }
}

package dev.portcullis.host;

/** The part of a write at which a hook is asked. */
public enum Stage {
  /** No stage, or one that this SDK does not know: that of {@link Request#of}. */
  UNSPECIFIED,
  /** Initializers complete an object before it is created. */
  INITIALIZE,
  /** Mutating hooks change the object. */
  MUTATE,
  /** Validating hooks judge the object as it will be stored. */
  VALIDATE;

  static Stage of(dev.portcullis.admission.v1.Stage stage) {
    return Names.same(values(), "STAGE_", stage);
  }
}

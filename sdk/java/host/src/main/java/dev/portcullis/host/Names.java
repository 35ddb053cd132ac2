package dev.portcullis.host;

/** Names of the values of enums. */
final class Names {
  private Names() {}

  /**
   * Returns the value with the name of a value of the contract, and the first one for values of
   * later contracts.
   *
   * @param prefix of names of the contract
   */
  static <E extends Enum<E>> E same(E[] values, String prefix, Enum<?> ofContract) {
    for (E value : values) {
      if (ofContract.name().equals(prefix + value.name())) {
        return value;
      }
    }
    return values[0];
  }
}

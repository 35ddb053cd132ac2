/** What a host writes about itself: fields, then a message, as pino takes them. */
export type Log = (fields: Readonly<Record<string, unknown>>, message: string) => void;

/** Where a host writes. A logger of pino and `console` are such; an error is in the field `err`. */
export interface Logger {
  /** Something for a developer. */
  readonly debug: Log;
  /** Something that an operator may want to know. */
  readonly info: Log;
  /** Something that an operator should look at. */
  readonly warn: Log;
  /** A failure. */
  readonly error: Log;
}

/** Writes nothing. */
export const silentLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} };

/** The console, without what is for developers. */
export const consoleLogger: Logger = { ...console, debug() {} };

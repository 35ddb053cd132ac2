/** What a host writes about itself. pino, winston's child loggers behind an adapter, and `console` fit. */
export interface Logger {
  /** Something for a developer. */
  debug(message: string, fields: Readonly<Record<string, unknown>>): void;
  /** Something that an operator may want to know. */
  info(message: string, fields: Readonly<Record<string, unknown>>): void;
  /** Something that an operator should look at. */
  warn(message: string, fields: Readonly<Record<string, unknown>>): void;
  /** A failure. */
  error(message: string, fields: Readonly<Record<string, unknown>>): void;
}

/** Writes lines of JSON to standard error, without those for developers. */
export const jsonLogger: Logger = {
  debug() {},
  info: (message, fields) => write("info", message, fields),
  warn: (message, fields) => write("warn", message, fields),
  error: (message, fields) => write("error", message, fields),
};

/** Writes nothing. */
export const silentLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} };

function write(level: string, message: string, fields: Readonly<Record<string, unknown>>): void {
  process.stderr.write(`${JSON.stringify({ time: new Date(), level, message, ...fields }, plain)}\n`);
}

/** plain makes JSON of what JSON.stringify loses or refuses. */
function plain(_key: string, value: unknown): unknown {
  if (value instanceof Error) {
    return value.stack ?? value.message;
  }
  return typeof value === "bigint" ? value.toString() : value;
}

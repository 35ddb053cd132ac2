import { isIP } from "node:net";

/** splitAddress splits `host:port`, also `[::1]:port`; undefined if it is not of this form. */
export function splitAddress(address: string): { host: string; port: string } | undefined {
  const [, bracketed, plain, port] = /^(?:\[([^[\]]*)\]|([^:[\]]*)):([^:]*)$/.exec(address) ?? [];
  const host = bracketed ?? plain;
  return host === undefined || port === undefined ? undefined : { host, port };
}

/** joinAddress is the reverse of splitAddress. */
export function joinAddress(host: string, port: string): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** isAddress reports whether a host is an IP address. */
export function isAddress(host: string): boolean {
  return isIP(host) !== 0;
}

/** @connectrpc/connect names it, and the types of Node.js 20 do not. */
type HeadersInit = ConstructorParameters<typeof Headers>[0];

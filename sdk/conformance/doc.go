// Package conformance holds the tests that decide whether a host keeps the contract of docs/protocol.md, in any language. They drive a
// test host, a program of the SDK under test: its settings and events are the types here. README.md has its contract, and how to run the
// tests.
package conformance

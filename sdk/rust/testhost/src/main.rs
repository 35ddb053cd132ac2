//! The host that the conformance suite drives.
fn main() {}

/** The test host of the conformance suite. sdk/conformance/README.md has its contract. */
@NullMarked
package dev.portcullis.testhost;

import org.jspecify.annotations.NullMarked;

/** Tests of the SDK. */
@NullMarked
package dev.portcullis.host;

import org.jspecify.annotations.NullMarked;

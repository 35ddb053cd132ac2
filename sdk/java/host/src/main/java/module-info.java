/** Serves admission hooks to a Portcullis mesh. */
module dev.portcullis.host {
  requires transitive com.fasterxml.jackson.databind;
  requires transitive dev.portcullis.protocol;
  requires transitive io.opentelemetry.api;
  requires transitive static org.jspecify;
  requires static com.google.errorprone.annotations;
  requires com.google.common;
  requires io.grpc.netty.shaded;
  requires io.opentelemetry.context;
  // Guava, Netty and Protobuf need these, and are no modules that could say so.
  requires com.google.common.util.concurrent.internal;
  requires jdk.unsupported;

  exports dev.portcullis.host;
}

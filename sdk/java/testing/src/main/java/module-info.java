/** A fake dispatcher for tests of hosts, and tables of cases. */
module dev.portcullis.host.testing {
  requires transitive dev.portcullis.host;
  requires transitive static org.jspecify;
  requires com.fasterxml.jackson.dataformat.yaml;
  requires io.grpc.netty.shaded;

  exports dev.portcullis.host.testing;
}

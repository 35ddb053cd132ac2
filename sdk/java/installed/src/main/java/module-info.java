/** A project that has installed the artifacts, in check. */
module installed {
  requires dev.portcullis.host;
  requires dev.portcullis.host.testing;
}

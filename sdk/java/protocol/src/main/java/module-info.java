/** The messages between hosts and dispatchers, generated from the contract. */
module dev.portcullis.protocol {
  requires transitive com.google.protobuf;
  requires transitive io.grpc;
  requires transitive io.grpc.protobuf;
  requires transitive io.grpc.stub;

  exports dev.portcullis.admission.v1;
  exports dev.portcullis.host.v1;
}

"""The messages of the contract, generated from host.proto, admission.proto and initializer.proto.

Most hosts need none of them: :class:`portcullis_host.Request` and :class:`portcullis_host.Response` have what handlers use.
``admission`` has the AdmissionRequest behind a request, ``host`` the frames of a session, for tests, and
``initializer`` the messages of :mod:`portcullis_host.staged`.
"""

from portcullis_host._gen.portcullis.admission.v1 import admission_pb2 as admission
from portcullis_host._gen.portcullis.host.v1 import host_pb2 as host
from portcullis_host._gen.portcullis.initializer.v1 import initializer_pb2 as initializer

__all__ = ["admission", "host", "initializer"]

"""The messages of the contract, generated from host.proto and admission.proto.

Most hosts need none of them: :class:`portcullis_host.Request` and :class:`portcullis_host.Response` have what handlers use.
``admission`` has the AdmissionRequest behind a request, ``host`` the frames of a session, for tests.
"""

from portcullis_host._gen.portcullis.admission.v1 import admission_pb2 as admission
from portcullis_host._gen.portcullis.host.v1 import host_pb2 as host

__all__ = ["admission", "host"]

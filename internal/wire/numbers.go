package wire

import "google.golang.org/protobuf/encoding/protowire"

// Numbers of the fields of ConnectRequest, the frames of a host.
const (
	ConnectRequestHello       protowire.Number = 1
	ConnectRequestVerdict     protowire.Number = 2
	ConnectRequestDrain       protowire.Number = 3
	ConnectRequestPong        protowire.Number = 4
	ConnectRequestCredit      protowire.Number = 5
	ConnectRequestProbeResult protowire.Number = 6
	ConnectRequestVerdicts    protowire.Number = 7
)

// Numbers of the fields of ConnectResponse, the frames of a dispatcher.
const (
	ConnectResponseReview  protowire.Number = 2
	ConnectResponseReviews protowire.Number = 11
	ConnectResponseChunk   protowire.Number = 12
)

// Numbers of the fields of Review, Reviews, HookCall and Chunk.
const (
	ReviewCallID      protowire.Number = 1
	ReviewHooks       protowire.Number = 2
	ReviewTraceparent protowire.Number = 3
	ReviewTracestate  protowire.Number = 4
	ReviewRequest     protowire.Number = 15

	ReviewsReviews protowire.Number = 1

	HookCallName          protowire.Number = 1
	HookCallStage         protowire.Number = 2
	HookCallRemaining     protowire.Number = 3
	HookCallRound         protowire.Number = 4
	HookCallMode          protowire.Number = 5
	HookCallReservation   protowire.Number = 6
	HookCallConfiguration protowire.Number = 7
	HookCallSpan          protowire.Number = 8

	ChunkCallID protowire.Number = 1
	ChunkTotal  protowire.Number = 2
	ChunkHooks  protowire.Number = 3
	ChunkData   protowire.Number = 15
)

// Numbers of the fields of Verdicts, Verdict and its outcomes.
const (
	VerdictsVerdicts protowire.Number = 1

	VerdictCallID    protowire.Number = 1
	VerdictHookIndex protowire.Number = 2
	VerdictResponse  protowire.Number = 3
	VerdictError     protowire.Number = 4
	VerdictCancelled protowire.Number = 5
	VerdictRefused   protowire.Number = 6
	VerdictQueue     protowire.Number = 7
	VerdictHandle    protowire.Number = 8

	HandlerErrorMessage  protowire.Number = 1
	HandlerErrorPanicked protowire.Number = 2

	RefusedReason protowire.Number = 1

	ResponseAllowed     protowire.Number = 2
	ResponseStatus      protowire.Number = 3
	ResponseAnnotations protowire.Number = 6
	ResponseWarnings    protowire.Number = 7

	StatusDetails       protowire.Number = 4
	StatusDetailsCauses protowire.Number = 5
)

// Numbers of the fields of AdmissionRequest and of the messages in it.
const (
	RequestUID                protowire.Number = 1
	RequestCluster            protowire.Number = 2
	RequestKind               protowire.Number = 3
	RequestResource           protowire.Number = 4
	RequestSubResource        protowire.Number = 5
	RequestRequestKind        protowire.Number = 6
	RequestRequestResource    protowire.Number = 7
	RequestRequestSubResource protowire.Number = 8
	RequestName               protowire.Number = 9
	RequestNamespace          protowire.Number = 10
	RequestOperation          protowire.Number = 11
	RequestUserInfo           protowire.Number = 12
	RequestObject             protowire.Number = 13
	RequestOldObject          protowire.Number = 14
	RequestOptions            protowire.Number = 15
	RequestDryRun             protowire.Number = 16
	RequestObjectRevision     protowire.Number = 17
	RequestProjection         protowire.Number = 18

	GroupVersionGroup   protowire.Number = 1 // of GroupVersionKind and GroupVersionResource
	GroupVersionVersion protowire.Number = 2
	GroupVersionName    protowire.Number = 3 // kind or resource

	UserInfoUsername protowire.Number = 1
	UserInfoUID      protowire.Number = 2
	UserInfoGroups   protowire.Number = 3
	UserInfoExtra    protowire.Number = 4

	ExtraKey        protowire.Number = 1 // of an entry of UserInfo.extra
	ExtraValue      protowire.Number = 2
	ExtraValueItems protowire.Number = 1

	ObjectContentType protowire.Number = 1
	ObjectRaw         protowire.Number = 2
)

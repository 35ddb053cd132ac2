// Package stream serves one live stream of one host: a [Session].
//
// A session is a pure state, which decides everything, behind one lock, with one reader and one writer around it. It knows
// neither hooks nor other sessions: calls come as a [Ticket], and a [Sink] takes their results. Frames with reviews are
// encoded here, around a [Body] that all hosts of the review share, and [Codec] hands them to gRPC without a copy.
package stream

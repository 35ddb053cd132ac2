package etcdstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// SameReport reports whether two reports differ in nothing but the time of writing.
func SameReport(a, b *configv1.DispatcherReport) bool {
	return proto.Equal(withoutTime(a), withoutTime(b))
}

func withoutTime(r *configv1.DispatcherReport) *configv1.DispatcherReport {
	r = proto.CloneOf(r)
	if s := r.GetStatus(); s != nil {
		s.Said, s.ConfigAgeMs = nil, 0
	}
	return r
}

// flatStatus is the status as the version before has it, beside the other fields of the report, whose names are the same in both versions.
// Both versions share a store during a rollout (docs/upgrade.md). The version after the next release can drop it.
type flatStatus struct {
	ID            string            `json:"id"`
	HostAddresses []string          `json:"hostAddresses,omitempty"`
	Version       string            `json:"version"`
	Digest        string            `json:"digest"`
	Sources       map[string]string `json:"sources"`
	Held          int64             `json:"held"`
	Begun         time.Time         `json:"begun"`
	Judging       bool              `json:"judging"`
	Diverging     []string          `json:"diverging,omitempty"`
	StaleUntil    time.Time         `json:"staleUntil,omitzero"`
	Said          time.Time         `json:"said"`
}

// encodeReport returns the JSON form of a report, which the version before reads too.
func encodeReport(r *configv1.DispatcherReport) ([]byte, error) {
	s := r.GetStatus()
	said := s.GetSaid().AsTime()
	flat := flatStatus{
		ID: s.GetDispatcherId(), HostAddresses: s.GetAddresses(), Version: s.GetVersion(), Judging: s.GetJudging(), Diverging: s.GetDiverging(),
		Digest: s.GetApplied().GetDigest(), Sources: s.GetApplied().GetSources(),
		Begun: said.Add(-time.Duration(s.GetConfigAgeMs()) * time.Millisecond), Said: said,
	}
	flat.Held, _ = strconv.ParseInt(s.GetHeld(), 10, 64)
	if s.GetServesStaleUntil() != nil {
		flat.StaleUntil = s.GetServesStaleUntil().AsTime()
	}
	data, err := protojson.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	before, err := json.Marshal(flat)
	if err != nil {
		return nil, fmt.Errorf("report of the version before: %w", err)
	}
	fields := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(data, &fields), json.Unmarshal(before, &fields)); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return json.Marshal(fields)
}

// decodeReport reads a report of this version, or of the version before.
func decodeReport(data []byte) (*configv1.DispatcherReport, error) {
	r := &configv1.DispatcherReport{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if r.GetStatus() != nil {
		return r, nil
	}
	var s flatStatus
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("report of the version before: %w", err)
	}
	r.Status = &configv1.DispatcherStatus{
		DispatcherId: s.ID, Addresses: s.HostAddresses, Version: s.Version, Judging: s.Judging, Diverging: s.Diverging,
		Applied: &configv1.Revision{Digest: s.Digest, Sources: s.Sources}, Held: strconv.FormatInt(s.Held, 10),
		ConfigAgeMs: uint32(max(s.Said.Sub(s.Begun).Milliseconds(), 0)), Said: timestamppb.New(s.Said),
	}
	if !s.StaleUntil.IsZero() {
		r.Status.ServesStaleUntil = timestamppb.New(s.StaleUntil)
	}
	return r, nil
}

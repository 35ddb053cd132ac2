package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// VerdictView is a Verdict that was read. Its outcome's bytes are a part of the frame.
type VerdictView struct {
	CallID    uint64
	HookIndex uint32
	QueueUS   uint32
	HandleUS  uint32
	Outcome   Oneof
}

// Read reads an encoded Verdict; v is empty before.
func (v *VerdictView) Read(encoded []byte) error {
	return Fields(encoded, func(f Field, body []byte) error {
		switch {
		case f.IsBytes:
			if f.Number >= VerdictResponse && f.Number <= VerdictRefused {
				v.Outcome.Set(f.Number, body)
			}
		case f.Number == VerdictCallID:
			v.CallID = f.Value
		case f.Number == VerdictHookIndex:
			v.HookIndex = uint32(f.Value)
		case f.Number == VerdictQueue:
			v.QueueUS = uint32(f.Value)
		case f.Number == VerdictHandle:
			v.HandleUS = uint32(f.Value)
		}
		return nil
	})
}

// ReadAllowed reads the field allowed of an encoded AdmissionResponse. plain reports that the message has no other field.
func ReadAllowed(encoded []byte) (allowed, plain bool, err error) {
	plain = true
	err = Fields(encoded, func(f Field, _ []byte) error {
		if f.Number == ResponseAllowed && !f.IsBytes {
			allowed = f.Value != 0
		} else {
			plain = false
		}
		return nil
	})
	return allowed, plain, err
}

// Count counts the fields of bytes at a path of field numbers in an encoded message.
func Count(encoded []byte, path ...protowire.Number) (count int) {
	_ = Fields(encoded, func(f Field, body []byte) error {
		switch {
		case f.Number != path[0] || !f.IsBytes:
		case len(path) == 1:
			count++
		default:
			count += Count(body, path[1:]...)
		}
		return nil
	})
	return count
}

// AppendAllow appends an encoded Verdict that allows and has no other answer: how most calls end.
func AppendAllow(b []byte, call uint64, hook, queueUS, handleUS uint32) []byte {
	b = AppendNumber(b, VerdictCallID, call)
	b = AppendNumber(b, VerdictHookIndex, uint64(hook))
	b = protowire.AppendVarint(protowire.AppendTag(b, VerdictResponse, protowire.BytesType), 2)
	b = AppendNumber(b, ResponseAllowed, 1)
	b = AppendNumber(b, VerdictQueue, uint64(queueUS))
	return AppendNumber(b, VerdictHandle, uint64(handleUS))
}

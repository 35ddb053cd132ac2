package chain_test

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// A client that asks for 5 s gets the answer of a fail-closed hook that needs 4.5 s, as from kube-apiserver. A fail-open one may not
// use the second in which the caller may have gone: the request would be refused.
func TestOnlyHooksThatFailClosedUseTimeThatIsUncertain(t *testing.T) {
	const certain, most = 3900 * time.Millisecond, 4900 * time.Millisecond
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	for name, test := range map[string]struct {
		policy   admissionregistrationv1.FailurePolicyType
		failOpen bool // all writes of the resource
		timeout  time.Duration
		want     time.Duration // that the call has
	}{
		"a hook that fails closed":                      {fail, false, 10 * time.Second, most},
		"one with a short timeout":                      {fail, false, 4 * time.Second, 4 * time.Second},
		"a hook that fails open":                        {ignore, false, 10 * time.Second, certain},
		"one that fails closed, where nothing does":     {fail, true, 10 * time.Second, certain},
		"a hook that fails open, with a short timeout":  {ignore, false, time.Second, time.Second},
		"one that fails closed, with the certain time":  {fail, false, certain, certain},
		"a hook that fails open, and a little too long": {ignore, false, certain + 1, certain},
	} {
		for stage, machine := range map[admissionv1.Stage]func(chain.Options) chain.Machine{
			admissionv1.Stage_STAGE_VALIDATE: func(o chain.Options) chain.Machine { return chain.NewValidate(o) },
			admissionv1.Stage_STAGE_MUTATE:   func(o chain.Options) chain.Machine { return chain.NewMutate(o) },
		} {
			t.Run(name+", "+stage.String(), func(t *testing.T) {
				m := machine(chain.Options{
					Request: &review.Request{Stage: stage, Admission: &admissionv1.AdmissionRequest{
						Uid: "u1", Operation: "CREATE", Object: &admissionv1.Object{Raw: []byte(`{"kind":"A","apiVersion":"v1"}`)},
					}},
					Revision: "r1", Codec: conversion.Raw{}, Subject: subject{}, FailOpen: test.failOpen,
					Deadline: epoch.Add(most), Certain: epoch.Add(certain),
					Hooks: []*match.Hook{{ID: match.HookID{Stage: stage, Configuration: "c", Name: "a"}, FailurePolicy: test.policy, Timeout: test.timeout}},
				})
				start, _ := m.Next(epoch)
				if got := start[0].Deadline.Sub(epoch); got != test.want || m.Wake() != start[0].Deadline {
					t.Errorf("the call has %s, want %s", got, test.want)
				}
				m.Next(epoch.Add(test.want - 1))
				if _, done := m.Answer(); done {
					t.Error("there is an answer before the time is over")
				}
				m.Next(epoch.Add(test.want))
				if answer, done := m.Answer(); !done || answer.Response.GetAllowed() == (test.policy == fail && !test.failOpen) {
					t.Errorf("answer %v, %t", answer.Response, done)
				}
			})
		}
	}
}

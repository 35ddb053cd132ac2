package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestTheTimeKeptBackIsInProportionToWhatTheAnswerTakes(t *testing.T) {
	for name, tt := range map[string]struct {
		stage admissionv1.Stage
		bytes int
		left  time.Duration
		want  time.Duration
	}{
		"A validating answer":                {admissionv1.Stage_STAGE_VALIDATE, 1 << 20, 10 * time.Second, minAnswerReserve},
		"A patch of a small object":          {admissionv1.Stage_STAGE_MUTATE, 2000, 10 * time.Second, minAnswerReserve + 200*time.Microsecond},
		"A patch of a large object":          {admissionv1.Stage_STAGE_REINVOKE, 500_000, 10 * time.Second, minAnswerReserve + 50*time.Millisecond},
		"No more than that":                  {admissionv1.Stage_STAGE_ADMIT, 3 << 20, 10 * time.Second, MaxAnswerReserve},
		"Of short deadlines a tenth at most": {admissionv1.Stage_STAGE_MUTATE, 3 << 20, 500 * time.Millisecond, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			ctx, cancel := context.WithDeadline(t.Context(), now.Add(tt.left))
			defer cancel()
			r := &review.Request{Stage: tt.stage, Admission: &admissionv1.AdmissionRequest{Object: &admissionv1.Object{Raw: make([]byte, tt.bytes)}}}
			if kept := tt.left - answerBy(ctx, now, r).Sub(now); kept != tt.want {
				t.Errorf("%s is kept back, want %s", kept, tt.want)
			}
		})
	}
}

func TestAReviewIsDueByTheEarlierOfItsDeadlines(t *testing.T) {
	now := time.Now()
	early, late := now.Add(time.Second), now.Add(time.Minute)
	for name, tt := range map[string]struct{ request, context, want time.Time }{
		"Neither says":              {want: now.Add(DefaultTimeout)},
		"The request alone":         {request: late, want: late},
		"The context alone":         {context: late, want: late},
		"The request's is earlier":  {request: early, context: late, want: early},
		"The context's is earlier":  {request: late, context: early, want: early},
		"Both have the same moment": {request: early, context: early, want: early},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if !tt.context.IsZero() {
				ctx, cancel = context.WithDeadline(ctx, tt.context)
			}
			defer cancel()
			if got := dueBy(ctx, now, &review.Request{Deadline: tt.request}); !got.Equal(tt.want) {
				t.Errorf("due in %s, want %s", got.Sub(now), tt.want.Sub(now))
			}
		})
	}
}

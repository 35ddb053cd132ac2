package jsonreview_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	allowed = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true}}`
	denied  = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":false}}`
)

func asked() jsonreview.Question {
	return jsonreview.Question{Stage: admissionv1.Stage_STAGE_VALIDATE, Version: jsonreview.V1, UID: "u"}
}

// answered reads an answer as far as a limit.
func answered(status int, header http.Header, body io.Reader, limit int) *jsonreview.Answer {
	return jsonreview.ReadAnswer(&http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: header, Body: io.NopCloser(body), ContentLength: -1,
	}, limit, nil)
}

func TestTheMeaningOfAnAnswer(t *testing.T) {
	cut := iotest.ErrReader(errors.New("reset"))
	for name, test := range map[string]struct {
		status int
		body   io.Reader
		limit  int
		want   jsonreview.FaultKind // 0 for a verdict
		denies bool
	}{
		"an allowance":                     {200, strings.NewReader(allowed), 1 << 10, 0, false},
		"a denial":                         {200, strings.NewReader(denied), 1 << 10, 0, true},
		"a denial under an error":          {500, strings.NewReader(denied), 1 << 10, 0, true},
		"a denial in front of a lost end":  {200, io.MultiReader(strings.NewReader(denied), cut), 1 << 10, 0, true},
		"a denial in front of the limit":   {200, strings.NewReader(denied + strings.Repeat(" ", 1<<10)), 1 << 10, 0, true},
		"an allowance that is too long":    {200, strings.NewReader(allowed + strings.Repeat(" ", 1<<10)), 1 << 10, jsonreview.BadAnswer, false},
		"an allowance whose end is lost":   {200, io.MultiReader(strings.NewReader(allowed), cut), 1 << 10, jsonreview.CutOff, false},
		"an allowance under an error":      {500, strings.NewReader(allowed), 1 << 10, jsonreview.Failed, false},
		"a redirect":                       {307, strings.NewReader(allowed), 1 << 10, jsonreview.BadAnswer, false},
		"a review that is too large":       {413, strings.NewReader(""), 1 << 10, jsonreview.TooLarge, false},
		"too many calls":                   {429, strings.NewReader(""), 1 << 10, jsonreview.Overloaded, false},
		"a webhook that does not serve":    {503, strings.NewReader(""), 1 << 10, jsonreview.Unavailable, false},
		"bytes that are no JSON":           {200, strings.NewReader("<html>"), 1 << 10, jsonreview.BadAnswer, false},
		"another protocol on the same way": {101, cut, 1 << 10, jsonreview.BadAnswer, false},
	} {
		t.Run(name, func(t *testing.T) {
			verdict, fault := asked().Verdict(answered(test.status, http.Header{}, test.body, test.limit))
			switch {
			case test.want == 0 && (fault != nil || verdict.GetAllowed() == test.denies):
				t.Errorf("verdict %v, %v", verdict, fault)
			case test.want != 0 && (fault == nil || fault.Kind != test.want):
				t.Errorf("verdict %v, %v, want a fault of kind %d", verdict, fault, test.want)
			}
		})
	}
	if denial := (jsonreview.Question{}).Denial(answered(200, nil, strings.NewReader(denied), 1<<10)); denial != nil {
		t.Errorf("a question that is no review was denied: %v", denial)
	}
}

func TestAPatchThatV1beta1IgnoresIsNone(t *testing.T) {
	const body = `{"response":{"allowed":true,"patch":"W10="}}`
	for stage, want := range map[admissionv1.Stage]string{admissionv1.Stage_STAGE_VALIDATE: "", admissionv1.Stage_STAGE_MUTATE: "[]"} {
		q := jsonreview.Question{Stage: stage, Version: jsonreview.V1beta1, UID: "u"}
		verdict, fault := q.Verdict(answered(200, nil, strings.NewReader(body), 1<<10))
		if fault != nil || string(verdict.GetPatch()) != want || (verdict.GetPatchType() == "") != (want == "") {
			t.Errorf("%s: %v, %v", stage, verdict, fault)
		}
	}
}

func TestARequestIsSentAgainWhenTheWebhookAsks(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		status  int
		after   string
		body    string
		retries int
		left    time.Duration
		pause   time.Duration
		again   bool
	}{
		"an answer":                        {200, "1", allowed, 0, time.Minute, 0, false},
		"503 without a word":               {503, "", "", 0, time.Minute, 0, false},
		"503 with one":                     {503, "2", "", 0, time.Minute, 2 * time.Second, true},
		"429 with one":                     {429, "0", "", 9, time.Minute, time.Second, true},
		"a date":                           {503, "Thu, 01 Jan 1970 00:00:00 GMT", "", 0, time.Minute, 0, false},
		"too often":                        {503, "0", "", jsonreview.MaxRetries, time.Minute, 0, false},
		"later than the deadline":          {503, "2", "", 0, time.Second, 0, false},
		"a denial":                         {503, "0", denied, 0, time.Minute, 0, false},
		"longer than a duration may be":    {503, "9223372036854775807", "", 0, 1 << 62, 24 * time.Hour, true},
		"a negative time is the shortest":  {503, "-5", "", 0, time.Minute, time.Second, true},
		"an error that is not of a server": {404, "0", "", 0, time.Minute, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{}
			if test.after != "" {
				header.Set("Retry-After", test.after)
			}
			a := answered(test.status, header, strings.NewReader(test.body), 1<<10)
			pause, again := asked().Again(a, test.retries, time.Second, now, now.Add(test.left))
			if pause != test.pause || again != test.again {
				t.Errorf("%v %v, want %v %v", pause, again, test.pause, test.again)
			}
		})
	}
}

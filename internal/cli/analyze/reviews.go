package analyze

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// whole is the time of a review from the request to the answer.
func whole(v *analysisv1.Review) time.Duration {
	return v.GetEdge().AsDuration() + v.GetTook().AsDuration()
}

func sortByBegin(all []*analysisv1.Review) {
	slices.SortFunc(all, func(a, b *analysisv1.Review) int { return a.GetBegun().AsTime().Compare(b.GetBegun().AsTime()) })
}

func sortByTime(all []*analysisv1.Review) {
	slices.SortFunc(all, func(a, b *analysisv1.Review) int {
		return cmp.Or(cmp.Compare(whole(b), whole(a)), cmp.Compare(a.GetUid(), b.GetUid()))
	})
}

// Slowest returns the reviews of several dispatchers, the slowest first.
func Slowest(answers []*analysisv1.ListReviewsResponse) (all []*analysisv1.Review) {
	for _, a := range answers {
		all = append(all, a.GetReviews()...)
	}
	sortByTime(all)
	return all
}

// slowestHook is the hook that the review waited for alone for longest, and how long.
func slowestHook(v *analysisv1.Review) string {
	name, most := "-", time.Duration(0)
	for _, c := range v.GetCalls() {
		if d := c.GetAlone().AsDuration(); d > most {
			name, most = c.GetHook().GetName()+" "+round(d).String(), d
		}
	}
	return name
}

// jsonOf is JSON as values, for printers.
func jsonOf(data []byte) any {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return nil // gateway.Marshal makes JSON
	}
	return v
}

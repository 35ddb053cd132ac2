package analysis

import (
	"cmp"
	"slices"
	"time"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// Whole is the time of a review from the request to the answer.
func Whole(v *analysisv1.Review) Duration {
	return Duration(v.GetEdge().AsDuration() + v.GetTook().AsDuration())
}

// Slowest returns the reviews of several dispatchers, the slowest first.
func Slowest(answers []*analysisv1.ListReviewsResponse) (all []*analysisv1.Review) {
	for _, a := range answers {
		all = append(all, a.GetReviews()...)
	}
	slices.SortFunc(all, func(a, b *analysisv1.Review) int {
		return cmp.Or(cmp.Compare(Whole(b), Whole(a)), cmp.Compare(a.GetUid(), b.GetUid()))
	})
	return all
}

// SlowestHook is the hook that the review waited for alone for longest, and how long.
func SlowestHook(v *analysisv1.Review) string {
	name, most := "-", time.Duration(0)
	for _, c := range v.GetCalls() {
		if d := c.GetAlone().AsDuration(); d > most {
			name, most = c.GetHook().GetName()+" "+Duration(d).Rounded().String(), d
		}
	}
	return name
}

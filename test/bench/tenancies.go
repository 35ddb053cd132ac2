package main

import (
	"context"
	"fmt"
	"io"

	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/tenancy"
)

const (
	// tenancyReviews is how many reviews the measured cluster sends in a round, for a p99 that is not the slowest of few.
	tenancyReviews = 400
	// shortTenancyReviews is the number of reviews of a short run.
	shortTenancyReviews = 100
)

// tenancies measures how the floods of a cluster slow another.
func (c config) tenancies(ctx context.Context, run *report.Run, errs io.Writer) {
	wanted := func(t report.TenancyCell) bool { return c.pattern == nil || c.pattern.MatchString(t.String()) }
	if !anyTenancy(wanted) {
		return
	}
	fmt.Fprintln(errs, "tenancy")
	shown, failed, err := tenancy.Measure(ctx, tenancy.Options{
		Rounds: c.rounds, Reviews: pick(c.short, shortTenancyReviews, tenancyReviews), Wanted: wanted, Progress: errs,
	})
	if err != nil {
		fmt.Fprintf(errs, "tenancy: FAILED: %v\n", err)
		failed = append(failed, report.Failure{Name: "tenancy", Why: err.Error()})
	}
	run.Tenancies, run.Failures = shown, append(run.Failures, failed...)
}

// anyTenancy reports whether any cell is wanted.
func anyTenancy(wanted func(report.TenancyCell) bool) bool {
	for _, r := range report.Roads() {
		for _, f := range append(report.Floods(), report.Quiet) {
			if wanted(report.TenancyCell{Road: r, Flood: f}) {
				return true
			}
		}
	}
	return false
}

package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/dispatcher/reviewlog"
)

// recordConfig are the flags of the log of reviews.
type recordConfig struct {
	dir    string
	bytes  int64
	age    time.Duration
	values bool
}

func (c *recordConfig) bind(f *pflag.FlagSet) {
	f.StringVar(&c.dir, "record", "", "write reviews to this directory, for `portcullis replay`: never of Secrets, and without values (--record-values)")
	f.Int64Var(&c.bytes, "record-bytes", reviewlog.DefaultBytes, "most bytes of the files of --record: past it the oldest of the cluster with most goes")
	f.DurationVar(&c.age, "record-age", reviewlog.DefaultAge, "how long the files of --record are kept")
	f.BoolVar(&c.values, "record-values", false, "keep the values of ConfigMaps, environment variables and fields such as password in --record")
}

// validate refuses bounds that leave nothing.
func (c *recordConfig) validate() error {
	switch {
	case c.dir == "" && c.values:
		return errors.New("--record-values needs --record")
	case c.dir != "" && c.bytes < reviewlog.MinBytes:
		return fmt.Errorf("--record-bytes %d: name %d at least", c.bytes, int64(reviewlog.MinBytes))
	case c.dir != "" && c.age <= 0:
		return fmt.Errorf("--record-age %s: name a time above 0", c.age)
	}
	return nil
}

func (c *recordConfig) open(next reviewlog.Reviewer, metrics prometheus.Registerer, log *slog.Logger) (*reviewlog.Log, error) {
	return reviewlog.New(next, reviewlog.Options{Dir: c.dir, Bytes: c.bytes, Age: c.age, Values: c.values, Metrics: metrics, Logger: log})
}

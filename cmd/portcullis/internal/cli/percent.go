package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Percent is the value of a flag in percent, with or without the sign.
type Percent float64

// String implements [pflag.Value].
func (p *Percent) String() string { return strconv.FormatFloat(float64(*p), 'g', -1, 64) + "%" }

// Type implements [pflag.Value].
func (*Percent) Type() string { return "percent" }

// Set implements [pflag.Value].
func (p *Percent) Set(text string) error {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return errors.New("write a number of percent, as in 10%")
	}
	*p = Percent(n)
	return nil
}

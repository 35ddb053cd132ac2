package process_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// TestAProcessThatNeedsMoreThanItsGroupIsKilled runs a program that keeps 128 MiB, in groups above and below that.
func TestAProcessThatNeedsMoreThanItsGroupIsKilled(t *testing.T) {
	for name, test := range map[string]struct {
		bytes  int64
		killed bool
	}{"below": {32 << 20, true}, "above": {512 << 20, false}} {
		t.Run(name, func(t *testing.T) {
			group, err := process.NewMemoryGroup(test.bytes)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			path, args := group.Command("/bin/sh", []string{"-c", "head -c 134217728 /dev/zero | tail -c 134217728 | wc -c | grep -q 134217728"})
			p, err := process.Start(process.Command{Path: path, Args: args, LogFile: filepath.Join(t.TempDir(), "log")})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Err(); (err != nil) != test.killed {
				t.Errorf("the program ended with %v", err)
			}
			if err := group.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestThePeakOfMemoryBeginsAnew(t *testing.T) {
	p, err := process.Start(process.Command{Path: "/bin/sleep", Args: []string{"60"}, LogFile: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill() //nolint:errcheck // the test does not care how it ends
	if err := p.ForgetPeakMemory(); err != nil {
		t.Fatal(err)
	}
	if peak, err := p.PeakMemory(); err != nil || peak <= 0 {
		t.Errorf("the peak is %d bytes: %v", peak, err)
	}
	if now, err := p.Memory(); err != nil || now <= 0 {
		t.Errorf("it has %d bytes: %v", now, err)
	}
}

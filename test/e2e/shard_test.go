package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// shardVariable names a part of the tests, for example 1/2. Processes with different parts may run side by side: each has a cluster of its
// own.
const shardVariable = "E2E_SHARD"

// chooseShard has testing skip the tests of the other shards. Neighbours go to different shards: they take about as long as each other.
func chooseShard(ctx context.Context) error {
	value := os.Getenv(shardVariable)
	if value == "" {
		return nil
	}
	var shard, of int
	if n, err := fmt.Sscanf(value, "%d/%d", &shard, &of); n != 2 || err != nil || shard < 1 || shard > of {
		return fmt.Errorf("%s=%s names no shard: write 1/2 or 2/2", shardVariable, value)
	}
	names, err := listTests(ctx)
	if err != nil {
		return err
	}
	var skipped []string
	if given := flag.Lookup("test.skip").Value.String(); given != "" {
		skipped = append(skipped, given)
	}
	for i, name := range names {
		if i%of != shard-1 {
			skipped = append(skipped, "^"+name+"$")
		}
	}
	return flag.Set("test.skip", strings.Join(skipped, "|"))
}

// listTests returns the names of all tests, in the order in which they run.
func listTests(ctx context.Context) ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, program, "-test.list=^Test").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	var names []string
	for line := range bytes.Lines(out) {
		names = append(names, string(bytes.TrimSpace(line)))
	}
	return names, nil
}

// lists reports whether the command line asks for the names of tests, and runs none.
func lists() bool { return flag.Lookup("test.list").Value.String() != "" }

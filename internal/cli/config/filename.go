package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/config"
)

// stream reads what can be read once: standard input, which is "-", and pipes, as those of <(...) in a shell. ok is false for
// a path that is none of them.
func stream(cmd *cobra.Command, path string) (l config.Listing, ok bool, err error) {
	name, from := path, cmd.InOrStdin()
	if path == "-" {
		name = "standard input"
	} else {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice|fs.ModeSocket) == 0 {
			return l, false, nil // reading it will tell
		}
		f, err := os.Open(path)
		if err != nil {
			return l, false, err
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, config.MaxFileBytes+1))
	if err != nil {
		return l, false, fmt.Errorf("%s: %w", name, err)
	}
	l.Objects, l.Problems = config.Decode(name, data)
	return l, true, nil
}

// filenameUsage is the help of -f.
const filenameUsage = `file, pipe or directory of objects; "-" is standard input; may be given several times`

// filesByFlag refuses arguments of commands that read files.
func filesByFlag(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("files are named with -f: did you mean -f %s?", strings.Join(args, " -f "))
}

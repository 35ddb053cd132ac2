// Generate writes deploy/chart/portcullis/crds and deploy/schemas/ below the directory that it runs in: `make schemas`.
package main

import (
	"fmt"
	"os"

	"github.com/portcullis-mesh/portcullis/internal/schemas"
)

func main() {
	if err := schemas.Write("."); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

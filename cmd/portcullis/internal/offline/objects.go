package offline

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// maxObjectsBytes is the most bytes of a file of objects.
const maxObjectsBytes = 256 << 20

// LoadObjects reads the objects of files, for [Facts]: documents of YAML or JSON, and Lists of them.
func LoadObjects(files ...string) (all []*unstructured.Unstructured, err error) {
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			return nil, err
		}
		for _, written := range config.ReadWritten(file, data) {
			if p := written.Problems; len(p) > 0 {
				return nil, fmt.Errorf("%s:%d: %s", file, p[0].Line, p[0].Message)
			}
			objects, err := objectsOf(written.JSON)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, written.LineOf(""), err)
			}
			all = append(all, objects...)
		}
	}
	return all, nil
}

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxObjectsBytes+1))
	if err == nil && len(data) > maxObjectsBytes {
		err = fmt.Errorf("it is larger than %d bytes", maxObjectsBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return data, nil
}

// objectsOf are an object, or the items of a List.
func objectsOf(document []byte) (all []*unstructured.Unstructured, err error) {
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(document, &list); err != nil || list.Kind != "List" {
		list.Items = []json.RawMessage{document}
	}
	for _, item := range list.Items {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(item); err != nil {
			return nil, err //nolint:wrapcheck // the caller names the place
		}
		all = append(all, o)
	}
	return all, nil
}

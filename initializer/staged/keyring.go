package staged

import (
	"context"

	"k8s.io/apiserver/pkg/storage/value"
)

// plainPrefix is in front of values that are not encrypted.
const plainPrefix = "portcullis:plain:v1:"

// Keyring encrypts staged objects in etcd. It may be used concurrently. A nil keyring encrypts nothing.
type Keyring struct {
	current value.Transformer
}

// transformer returns the transformer of values.
func (k *Keyring) transformer() value.Transformer {
	if k == nil {
		return plain{}
	}
	return k.current
}

// plain encrypts nothing.
type plain struct{}

// TransformFromStorage implements value.Transformer.
func (plain) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	return data, false, nil
}

// TransformToStorage implements value.Transformer.
func (plain) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return data, nil
}

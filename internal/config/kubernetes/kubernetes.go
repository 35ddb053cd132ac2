// Package kubernetes reads the configuration from an API server: [Source] from the ConfigMaps of one namespace that carry a label,
// of whose data each key that ends in .yaml, .yml or .json is a file, and [CustomResources] from the custom resources of
// portcullis.dev/v1. Both list from etcd of the cluster; watches report changes sooner.
package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Label marks a ConfigMap, with the value "true", whose data is configuration.
const Label = "portcullis.dev/configuration"

// SourceName is the name of the source.
const SourceName = "kubernetes"

// Options say where the ConfigMaps are. All fields are required.
type Options struct {
	// Client asks the API server. It may get the namespace, and list and watch ConfigMaps in it: deploy/configmaps-rbac.yaml.
	Client coreclient.CoreV1Interface
	// Namespace is the only namespace that is read: an identity that may write there decides which objects every cluster
	// admits.
	Namespace string
	// Decoder reads the files.
	Decoder *config.Decoder
}

// Source is a config.Source. Its methods may be called concurrently.
type Source struct {
	o Options

	mu      sync.Mutex
	decoded config.DecodeCache[types.UID, string] // by resource version
}

var _ config.Source = (*Source)(nil)

// New returns a source. It asks nothing yet.
func New(o Options) (*Source, error) {
	if o.Client == nil || o.Namespace == "" || o.Decoder == nil {
		return nil, errors.New("config/kubernetes: a client, a namespace and a decoder are required")
	}
	return &Source{o: o}, nil
}

// Name implements config.Source.
func (s *Source) Name() string { return SourceName }

// List implements config.Source. It reads from etcd of the cluster, not from a cache. A namespace that does not exist, or is
// being deleted, is an error like a forbidden one: API servers answer a list of its ConfigMaps with an empty one.
func (s *Source) List(ctx context.Context) (config.Listing, error) {
	namespace, err := s.o.Client.Namespaces().Get(ctx, s.o.Namespace, metav1.GetOptions{})
	if err != nil {
		return config.Listing{}, fmt.Errorf("namespace %s of the configuration: %w", s.o.Namespace, err)
	}
	if namespace.DeletionTimestamp != nil {
		return config.Listing{}, fmt.Errorf("namespace %s of the configuration is being deleted", s.o.Namespace)
	}
	all, err := s.configMaps(ctx)
	if err != nil {
		return config.Listing{}, fmt.Errorf("ConfigMaps of namespace %s: %w", s.o.Namespace, err)
	}
	return s.listing(all), nil
}

// configMaps are all that carry the label.
func (s *Source) configMaps(ctx context.Context) ([]corev1.ConfigMap, error) {
	var all []corev1.ConfigMap
	_, err := pages(metav1.ListOptions{LabelSelector: Label + "=true"}, func(options metav1.ListOptions) (metav1.ListInterface, error) {
		page, err := s.o.Client.ConfigMaps(s.o.Namespace).List(ctx, options)
		if err == nil {
			all = append(all, page.Items...)
		}
		return page, err
	})
	return all, err
}

// listing names the ConfigMaps, and leaves the decoding of changed ones to the listing.
func (s *Source) listing(all []corev1.ConfigMap) config.Listing {
	slices.SortFunc(all, func(a, b corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
	digest := sha256.New()
	for i := range all {
		fmt.Fprintf(digest, "%s %s %s\n", all[i].Name, all[i].UID, all[i].ResourceVersion)
	}
	return config.Listing{
		Revision: hex.EncodeToString(digest.Sum(nil)[:16]),
		Decode:   func() ([]config.Object, config.Problems) { return s.decode(all) },
	}
}

// decode decodes ConfigMaps.
func (s *Source) decode(all []corev1.ConfigMap) ([]config.Object, config.Problems) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make([]config.Part[types.UID, string], 0, len(all))
	for i := range all {
		m := &all[i]
		parts = append(parts, config.Part[types.UID, string]{
			Key: m.UID, Version: m.ResourceVersion,
			Decode: func(b *config.Budget) ([]config.Object, config.Problems) { return s.decodeFiles(m, b) },
		})
	}
	return within(MaxObjects, "ConfigMaps")(s.decoded.Decode(parts))
}

// decodeFiles reads a ConfigMap. Its files are known by its name and their keys.
func (s *Source) decodeFiles(m *corev1.ConfigMap, budget *config.Budget) (objects []config.Object, problems config.Problems) {
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		file := path.Join("configmaps", m.Namespace, m.Name, key)
		switch path.Ext(key) {
		case ".yaml", ".yml", ".json", config.RegoExt:
			found, wrong := s.o.Decoder.DecodeWithin(budget, file, []byte(m.Data[key]))
			objects, problems = append(objects, found...), append(problems, wrong...)
		default:
			problems = append(problems, ignored(file, "a key that ends in .yaml, .yml or .json is read, and no other"))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.BinaryData)) {
		problems = append(problems, ignored(path.Join("configmaps", m.Namespace, m.Name, key), "binaryData is not read: use data"))
	}
	return objects, problems
}

func ignored(file, why string) config.Problem {
	return config.Problem{Severity: match.SeverityWarning, Code: config.CodeSource, File: file, Message: why}
}

// Watch implements config.Source. API servers end a watch every few minutes.
func (s *Source) Watch(ctx context.Context, notify func()) error {
	err := watchAll(ctx, notify, func(ctx context.Context) (watch.Interface, error) {
		return s.o.Client.ConfigMaps(s.o.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: Label + "=true"})
	})
	if err != nil {
		return fmt.Errorf("watching the ConfigMaps of namespace %s: %w", s.o.Namespace, err)
	}
	return nil
}

package certs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
)

// fieldManager names the writer in metadata.managedFields.
const fieldManager = "portcullis-certs"

// secrets is a Store of the Secrets of a namespace. A write replaces the data and nothing else.
type secrets struct {
	client    typedcorev1.SecretInterface
	namespace string
}

var _ keep.Store = (*secrets)(nil)

// Read implements [keep.Store].
func (s *secrets) Read(ctx context.Context, name string) (keep.Secret, error) {
	object, err := s.client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return keep.Secret{Name: name}, nil
	}
	if err != nil {
		return keep.Secret{}, err
	}
	return keep.Secret{Name: name, Files: object.Data, Version: object.ResourceVersion}, nil
}

// Write implements [keep.Store].
func (s *secrets) Write(ctx context.Context, secret keep.Secret) error {
	err := s.write(ctx, secret)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || secret.Version != "" && apierrors.IsNotFound(err) {
		return fmt.Errorf("the Secret in namespace %s: %w; run this again", s.namespace, keep.ErrConflict)
	}
	return err
}

func (s *secrets) write(ctx context.Context, secret keep.Secret) error {
	if secret.Version == "" {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret.Name, Namespace: s.namespace}, Type: corev1.SecretTypeOpaque, Data: secret.Files}
		_, err := s.client.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
		return err
	}
	object, err := s.client.Get(ctx, secret.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.ResourceVersion, object.Data = secret.Version, secret.Files
	_, err = s.client.Update(ctx, object, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

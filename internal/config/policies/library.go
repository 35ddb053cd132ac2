package policies

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// The names that expressions of a Policy have beside the names of Kubernetes. In an expansion each is a variable.
const (
	// nameParameters are the parameters of the Policy: parameters.NAME.
	nameParameters = "parameters"
	// namePod is the Pod, or the Pod template in the object: pod.spec, pod.metadata.
	namePod = "pod"
	// nameContainers are all containers of the Pod: containers, initContainers and ephemeralContainers.
	nameContainers = "allContainers"
	// nameImages are the images of all containers and of image volumes, each taken apart: text, registry, repository, tag, digest.
	nameImages = "images"
	// nameLabels are the labels of the Pod with podControllers, and else of the object; {} for none.
	nameLabels = "labels"
	// nameAnnotations are the annotations, as nameLabels are the labels.
	nameAnnotations = "annotations"
)

// namePodPath is a variable of an expansion that no expression of a Policy names: the JSON pointer of the Pod in the object; empty for a Pod.
const namePodPath = "podPath"

// libraryNames are all of them. A name comes after the names that its variable reads.
func libraryNames() []string {
	return []string{nameParameters, namePod, nameContainers, nameImages, nameLabels, nameAnnotations}
}

// reads are the names that the variable of a name reads.
func reads(name string, s *kinds.PolicySpec) []string {
	switch name {
	case nameContainers:
		return []string{namePod}
	case nameImages:
		return []string{namePod, nameContainers}
	case nameLabels, nameAnnotations:
		if s.PodControllers {
			return []string{namePod}
		}
	}
	return nil
}

// needsPod reports whether a name is about Pods alone.
func needsPod(name string) bool {
	return name == namePod || name == nameContainers || name == nameImages
}

// containersExpression is the variable allContainers. Each list may be absent.
const containersExpression = `variables.pod.spec.?containers.orValue([]) +
variables.pod.spec.?initContainers.orValue([]) +
variables.pod.spec.?ephemeralContainers.orValue([])`

// imagesExpression is the variable images. It reads a reference as github.com/distribution/reference does (ParseDockerRef): a first part with a dot, a
// colon or a capital, or localhost, is the registry, and else it is Docker Hub, whose own images are in library. A tag that is left out is latest,
// unless there is a digest.
const imagesExpression = `(variables.allContainers.map(c, string(c.?image.orValue(''))) +
  variables.pod.spec.?volumes.orValue([]).map(v, string(v.?image.?reference.orValue(''))))
.filter(text, text != '')
.map(text, {
  'text': text,
  'name': text.split('@')[0],
  'digest': text.find('@.*').replace('@', ''),
  'host': text.split('@')[0].find('^([^/]*[A-Z.:][^/]*|localhost)/'),
  'tag': text.split('@')[0].find(':[^:/]*$')
})
.map(i, {
  'text': i.text,
  'registry': i.host in ['', 'index.docker.io/'] ? 'docker.io' : i.host.replace('/', ''),
  'repository':
    (i.host in ['', 'docker.io/', 'index.docker.io/'] && !i.name.substring(i.host.size()).contains('/') ? 'library/' : '') +
    i.name.substring(i.host.size(), i.name.size() - i.tag.size()),
  'tag': i.tag != '' ? i.tag.replace(':', '') : i.digest != '' ? '' : 'latest',
  'digest': i.digest
})`

// variable returns the variable of a name but parameters. resources are the resources of the Policy, with its controllers.
func variable(name string, s *kinds.PolicySpec, resources []kinds.PolicyResource) admissionregistrationv1.Variable {
	v := admissionregistrationv1.Variable{Name: name}
	switch name {
	case namePod:
		v.Expression = byPodTemplate(subject(s), resources, func(path string) string { return strings.TrimSuffix(subject(s)+"."+path, ".") })
	case namePodPath:
		v.Expression = byPodTemplate(subject(s), resources, func(path string) string { return literal(pointerOf(strings.FieldsFunc(path, isDot))) })
	case nameContainers:
		v.Expression = containersExpression
	case nameImages:
		v.Expression = imagesExpression
	case nameLabels, nameAnnotations:
		of := subject(s)
		if s.PodControllers {
			of = "variables.pod"
		}
		v.Expression = fmt.Sprintf("%s.?metadata.?%s.orValue({})", of, name)
	}
	return v
}

// subject is the object that is written or, of a DELETE, the object that was. Its type is dynamic, since a policy may be about several kinds.
func subject(s *kinds.PolicySpec) string {
	if slices.Contains(s.EffectiveOperations(), admissionregistrationv1.Delete) {
		return "dyn(object == null ? oldObject : object)"
	}
	return "dyn(object)"
}

// byPodTemplate is an expression that depends on the path of the Pod template in objects of the resources.
func byPodTemplate(subject string, resources []kinds.PolicyResource, of func(path string) string) string {
	var kindsOf []string // in the order of the cases
	paths := map[string]string{}
	for _, r := range resources {
		path, _ := r.PodTemplate()
		kind := map[string]string{"pods": "Pod", "cronjobs": "CronJob"}[r.Resource] // the others have the same path
		if _, known := paths[kind]; !known {
			kindsOf = append(kindsOf, kind)
		}
		paths[kind] = of(path)
	}
	slices.SortFunc(kindsOf, func(a, b string) int { return strings.Compare(b, a) }) // the others last
	var text strings.Builder
	for i, kind := range kindsOf {
		if i < len(kindsOf)-1 {
			fmt.Fprintf(&text, "%s.kind == '%s' ? %s : ", subject, kind, paths[kind])
		} else {
			text.WriteString(paths[kind])
		}
	}
	return text.String()
}

package cluster

import "fmt"

// sayPlan prints what a join would do. It asks neither the mesh nor the cluster.
func (c *joinCommand) sayPlan() error {
	c.sayf("check the API server of %s and the mesh (client dry run)", c.name)
	switch {
	case c.secret != "":
		c.sayf("make a capability in %s, unless it is there (client dry run)", c.secret)
	default:
		c.sayf("know the API servers by the identity %s (client dry run)", c.identity)
	}
	if c.want.access == accessKubeconfig {
		c.sayf("make a service account in %s, and its kubeconfig in %s (client dry run)", c.name, c.accessFile)
	}
	c.sayf("complete Cluster/%s in the store, and wait for all dispatchers (client dry run)", c.name)
	c.sayf("have the API server call %s (client dry run)", c.options.URL)
	c.sayf("write mutatingwebhookconfiguration/%[1]s and validatingwebhookconfiguration/%[1]s (client dry run)", c.options.Name)
	return nil
}

// sayRest prints the remaining steps of the operator.
func (c *joinCommand) sayRest() error {
	if c.dryRun != "" {
		return nil
	}
	text := fmt.Sprintf("\n%s has joined. What is left for you:\n", c.name)
	if c.want.capability != nil {
		text += fmt.Sprintf("- Every dispatcher needs --allow-capabilities (serve.allowCapabilities of the chart). Keep %s: a later join or register needs it.\n"+
			"- Read who can see a capability, and how it is replaced: docs/clusters.md, managed control planes.\n", c.secret)
	}
	if spec := &c.document.Cluster.Spec; c.want.access == accessNone && spec.Namespaces == nil && spec.Kubeconfig == "" && spec.Bridge == nil {
		text += "- The mesh does not know the labels of namespaces: it refuses reviews that a namespaceSelector has to look at. " +
			"--access gives it a way to the cluster.\n"
	}
	if !c.keep && c.document.Cluster.Spec.Registration == nil {
		text += "- Run this command again when hooks change: `portcullis get clusters` finds entries that do not fit.\n"
	}
	text += fmt.Sprintf("- The way back: portcullis cluster unregister %s --remove-document\n", c.name)
	_, err := fmt.Fprint(c.out, text)
	return err
}

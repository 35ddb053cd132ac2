package cluster

import "fmt"

// sayPlan prints the steps of a join. It asks neither the mesh nor the cluster.
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

// sayRest prints that the cluster has joined, and the remaining steps of the operator.
func (c *joinCommand) sayRest() error {
	if c.dryRun != "" {
		return nil
	}
	text := fmt.Sprintf("\n%s has joined.\n", c.name)
	for _, step := range c.rest() {
		text += "- " + step + "\n"
	}
	_, err := fmt.Fprint(c.out, text)
	return err
}

// rest are the steps that the trial has not shown to be done. Hooks that select by labels that the mesh does not know were named with the
// entries.
func (c *joinCommand) rest() (steps []string) {
	if c.want.capability != nil {
		if c.dispatchers > 1 {
			steps = append(steps, fmt.Sprintf("The trial has reached 1 of %d dispatchers: each needs --allow-capabilities "+
				"(serve.allowCapabilities of the chart).", c.dispatchers))
		}
		steps = append(steps, fmt.Sprintf("Keep %s: a later join or register needs it. Who can see it, and how it is replaced: "+
			"docs/clusters.md, managed control planes.", c.secret))
	}
	if !c.keep && c.document.Cluster.Spec.Registration == nil {
		steps = append(steps, "Run this command again when hooks change: `apply` and `portcullis get clusters` say when.")
	}
	return append(steps, fmt.Sprintf("The way back: portcullis cluster unregister %s --remove-document", c.name))
}

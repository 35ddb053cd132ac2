package follow

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// unlistedHost is why webhooks are not called at their URLs: the host of one is none that the operator has listed. It is empty if all are
// listed, or there is no URL.
func unlistedHost(webhooks []map[string]any, follow *kinds.Follow) string {
	for i, webhook := range webhooks {
		address := clientConfigOf(webhook).URL
		if address == nil {
			continue
		}
		host := ""
		if u, err := url.Parse(*address); err == nil {
			host = strings.ToLower(u.Hostname())
		}
		if host == "" || !follow.NamesHost(host) {
			return fmt.Sprintf("webhooks[%d].clientConfig.url names the host %q, which spec.follow.webhookHosts does not list: "+
				"add it there if the mesh may call it, or have the owner name a Service", i, host)
		}
	}
	return ""
}

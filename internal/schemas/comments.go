package schemas

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// comments are the doc comments of the fields of package kinds, by type and field, and of the types themselves, by type and
// "".
type comments map[string]map[string]string

// readComments reads them from the source in a directory.
func readComments(dir string) (comments, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	found := comments{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range parsed.Decls {
			if types, ok := decl.(*ast.GenDecl); ok && types.Tok == token.TYPE {
				found.add(types)
			}
		}
	}
	return found, nil
}

func (c comments) add(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		named, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		fields := map[string]string{"": oneLine(decl.Doc.Text())}
		if s, ok := named.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, name := range f.Names {
					fields[name.Name] = oneLine(f.Doc.Text())
				}
			}
		}
		c[named.Name.Name] = fields
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// describe is the description of a field for people who write documents: with the names that documents have for things.
// Types of Kubernetes describe themselves.
func (c comments) describe(t reflect.Type, f reflect.StructField) string {
	if documented, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return documented.SwaggerDoc()[jsonName(f)]
	}
	text := c[t.Name()][f.Name]
	for other := range t.Fields() {
		if name := jsonName(other); name != "" {
			text = regexp.MustCompile(`\b`+other.Name+`\b`).ReplaceAllString(text, name)
		}
	}
	return asWritten(text)
}

// asWritten puts values in the place of the names that Go code has for them.
func asWritten(text string) string {
	return strings.NewReplacer(
		"MinCapabilityPeriod", kinds.MinCapabilityPeriod.String(), "MaxCapabilityPeriod", kinds.MaxCapabilityPeriod.String(),
		"MinConfigurationAge", kinds.MinConfigurationAge.String(), "MaxConfigurationAge", kinds.MaxConfigurationAge.String(),
		"MinHedgeAfter", kinds.MinHedgeAfter.String(), "MaxHedgeAfter", kinds.MaxHedgeAfter.String(),
		"MinHedgePercent", strconv.Itoa(kinds.MinHedgePercent), "MaxHedgePercent", strconv.Itoa(kinds.MaxHedgePercent),
		"at most MaxCapabilities", fmt.Sprintf("at most %d", kinds.MaxCapabilities),
		"RotationAfterProbe", string(kinds.RotationAfterProbe),
		"RoleViewer", string(kinds.RoleViewer), "RoleAuthor", string(kinds.RoleAuthor), "RoleOperator", string(kinds.RoleOperator),
		"a ClusterSpec", "a Cluster", "BreakGlass", "breakGlass",
		", as identity.CheckAuthority takes them", ` (`+"`sha256:HEX` and `spiffe://TRUST-DOMAIN`"+`)`,
	).Replace(text)
}

// jsonName is the name of a field in documents; empty when it has none of its own.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

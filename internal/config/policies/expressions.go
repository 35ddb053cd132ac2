package policies

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// maxErrors bounds the errors that are reported about one expression.
const maxErrors = 5

// kubernetesNames are the names of Kubernetes that expressions of a Policy have. The mesh refuses others in a ValidatingAdmissionPolicy, or asks the
// cluster for them.
func kubernetesNames() []string {
	return []string{admissioncel.ObjectVarName, admissioncel.OldObjectVarName, admissioncel.RequestVarName}
}

// scope is an environment that expressions of a Policy are checked in.
type scope struct {
	env   *cel.Env
	names []string // beside Kubernetes': of the library, and its own
	own   []string
}

// newScope makes the environment of kube-apiserver for new expressions, with the names of the library and with names of any type.
func newScope(own []string) (*scope, error) {
	request, image := admissioncel.BuildRequestType(), imageType()
	texts := cel.MapType(cel.StringType, cel.StringType)
	options := []cel.EnvOption{
		cel.Variable(admissioncel.ObjectVarName, cel.DynType), cel.Variable(admissioncel.OldObjectVarName, cel.DynType),
		cel.Variable(admissioncel.RequestVarName, request.CelType()), cel.Variable(namePod, cel.DynType),
		cel.Variable(nameParameters, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(nameContainers, cel.ListType(cel.DynType)), cel.Variable(nameImages, cel.ListType(image.CelType())),
		cel.Variable(nameLabels, texts), cel.Variable(nameAnnotations, texts),
	}
	for _, name := range own {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	extended, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		DeclTypes:         []*apiservercel.DeclType{request, image},
		EnvOptions:        options,
	})
	if err != nil {
		return nil, fmt.Errorf("the names of a Policy: %w", err)
	}
	return &scope{extended.NewExpressionsEnv(), append(libraryNames(), own...), own}, nil
}

// imageType is an item of images. In an expansion it is a map; the type finds misspelt fields.
func imageType() *apiservercel.DeclType {
	fields := map[string]*apiservercel.DeclField{}
	for _, name := range []string{"text", "registry", "repository", "tag", "digest"} {
		fields[name] = apiservercel.NewDeclField(name, apiservercel.StringType, true, nil, nil)
	}
	return apiservercel.NewObjectType("portcullis.Image", fields)
}

// expression is an expression of a Policy that holds in the environment.
type expression struct {
	text string
	uses []use     // sorted by their places
	of   *cel.Type // of its value
}

// use is a name of the library, or nameCurrent, in an expression.
type use struct {
	name string
	at   int // in characters of the text
}

// parse checks an expression, whose value may be of any type if result is nil. parameters and variables are the names that there are.
func (s *scope) parse(text string, result *cel.Type, parameters, variables []string) (e expression, problems []string) {
	text = strings.TrimSpace(text) // as Kubernetes' validation does
	parsed, issues := s.env.Parse(text)
	if issues.Err() != nil {
		return e, s.problems(issues, text)
	}
	f := finder{tree: parsed.NativeRep(), scope: s, parameters: parameters, variables: variables}
	f.visit(f.tree.Expr(), nil)
	slices.SortFunc(f.uses, func(a, b use) int { return a.at - b.at })
	if len(f.unknown) > 0 {
		return e, f.unknown
	}
	checked, issues := s.env.Check(parsed)
	if issues.Err() != nil {
		return e, s.problems(issues, text)
	}
	switch got := checked.OutputType(); {
	case result == nil && got.Kind() == cel.OpaqueKind:
		f.problems = append(f.problems, fmt.Sprintf("must be a value, and is of type %s: end it with orValue(...)", got))
	case result == nil:
	case got.IsEquivalentType(result):
	case got.Kind() == cel.DynKind: // Kubernetes refuses it
		f.problems = append(f.problems, fmt.Sprintf("must be of type %s, and its type is not known before it is evaluated: write %[1]s(...) around it", result))
	default:
		f.problems = append(f.problems, fmt.Sprintf("must be of type %s, and is of type %s", result, got))
	}
	return expression{text, slices.Compact(f.uses), checked.OutputType()}, f.problems
}

// variableOf is a name of the library in an expansion.
func variableOf(name string) string { return admissioncel.VariableVarName + "." + name }

// qualified is the expression as a policy of Kubernetes has it: names of the library are variables. Some names stand for other expressions.
func (e *expression) qualified(replaced map[string]string) string {
	characters, out, from := []rune(e.text), strings.Builder{}, 0
	for _, u := range e.uses {
		text, ok := replaced[u.name]
		if !ok {
			text = variableOf(u.name)
		}
		out.WriteString(string(characters[from:u.at]) + text)
		from = u.at + len(u.name)
	}
	out.WriteString(string(characters[from:]))
	return out.String()
}

// finder looks for names of the library in an expression.
type finder struct {
	tree       *ast.AST
	scope      *scope
	parameters []string
	variables  []string
	uses       []use
	problems   []string
	unknown    []string // variables that there are not
}

// visit looks at an expression and at all in it. bound are the names that comprehensions around it have made.
func (f *finder) visit(e ast.Expr, bound []string) {
	switch e.Kind() {
	case ast.IdentKind:
		f.ident(e, bound)
	case ast.SelectKind:
		f.selection(e, bound)
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			f.visit(e.AsCall().Target(), bound)
		}
		f.all(e.AsCall().Args(), bound)
	case ast.ListKind:
		f.all(e.AsList().Elements(), bound)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			f.visit(entry.AsMapEntry().Key(), bound)
			f.visit(entry.AsMapEntry().Value(), bound)
		}
	case ast.StructKind:
		for _, entry := range e.AsStruct().Fields() {
			f.visit(entry.AsStructField().Value(), bound)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		f.all([]ast.Expr{c.IterRange(), c.AccuInit()}, bound)
		inner := append(slices.Clone(bound), c.AccuVar(), c.IterVar(), c.IterVar2())
		for _, name := range []string{c.IterVar(), c.IterVar2()} {
			if name == admissioncel.VariableVarName && len(f.variables) > 0 { // CEL would take a field of it for a variable of the policy
				f.unknown = append(f.unknown, "the name is taken by spec.variables: take another name for the variable")
			}
			if slices.Contains(f.scope.own, name) {
				f.problems = append(f.problems, fmt.Sprintf("%s has a meaning in mutations: take another name for the variable", name))
			}
		}
		f.all([]ast.Expr{c.LoopCondition(), c.LoopStep(), c.Result()}, inner)
	case ast.LiteralKind, ast.UnspecifiedExprKind:
	}
}

func (f *finder) all(expressions []ast.Expr, bound []string) {
	for _, e := range expressions {
		f.visit(e, bound)
	}
}

func (f *finder) ident(e ast.Expr, bound []string) {
	name := e.AsIdent()
	if dotless, ok := strings.CutPrefix(name, "."); ok && slices.Contains(libraryNames(), dotless) {
		f.problems = append(f.problems, fmt.Sprintf("write %s without the dot before it", dotless))
		return
	}
	place, ok := f.tree.SourceInfo().GetOffsetRange(e.ID())
	if ok && !slices.Contains(bound, name) && (name == nameCurrent || slices.Contains(libraryNames(), name)) {
		f.uses = append(f.uses, use{name, int(place.Start)})
	}
}

func (f *finder) selection(e ast.Expr, bound []string) {
	s := e.AsSelect()
	name, of := s.FieldName(), ""
	if s.Operand().Kind() == ast.IdentKind && !slices.Contains(bound, s.Operand().AsIdent()) {
		of = s.Operand().AsIdent()
	}
	switch {
	case of == nameParameters && !slices.Contains(f.parameters, name):
		f.problems = append(f.problems, fmt.Sprintf("there is no parameter %q in spec.parameters%s", name, suggest.DidYouMean(name, f.parameters)))
	case of == admissioncel.VariableVarName && slices.Contains(libraryNames(), name):
		f.unknown = append(f.unknown, fmt.Sprintf("write %s without variables. before it", name))
	case of == admissioncel.VariableVarName && !slices.Contains(f.variables, name):
		f.unknown = append(f.unknown, fmt.Sprintf("there is no variable %q in spec.variables before it%s", name, suggest.DidYouMean(name, f.variables)))
	}
	f.visit(s.Operand(), bound)
}

var undeclared = regexp.MustCompile(`^undeclared reference to '(\w+)' \(in container ''\)$`)

// problems are the messages of the parser or the checker, with their places in the expression.
func (s *scope) problems(issues *cel.Issues, text string) (problems []string) {
	for _, err := range issues.Errors() {
		if len(problems) == maxErrors {
			break
		}
		message := err.Message
		if name := undeclared.FindStringSubmatch(message); name != nil {
			names := append(kubernetesNames(), s.names...)
			message = fmt.Sprintf("there is no %q; there are %s and %s%s", name[1], strings.Join(names[:len(names)-1], ", "), names[len(names)-1],
				suggest.DidYouMean(name[1], names))
		}
		if len(problems) == 0 {
			message += suggest.Operator(text, err.Message)
		}
		problems = append(problems, fmt.Sprintf("line %d, column %d: %s", err.Location.Line(), err.Location.Column()+1, message))
	}
	return problems
}

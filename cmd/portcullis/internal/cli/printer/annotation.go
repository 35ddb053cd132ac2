package printer

import (
	"fmt"
	"strings"
)

// Annotation is a workflow command of GitHub Actions, which shows a text on a line of a file. The level is "error", "warning" or "notice".
func Annotation(level, file string, line int, title, text string) string {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	return fmt.Sprintf("::%s file=%s,line=%d,title=%s::%s", level, property.Replace(file), max(line, 1), property.Replace(title), data.Replace(text))
}

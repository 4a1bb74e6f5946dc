// Package reload has the tool reloadConfig, with which operators make a program read its config again.
package reload

import (
	"context"
	"fmt"

	"toolpost/builtin/define"
	"toolpost/tool"
)

// A Report is the outcome of a reload.
type Report struct {
	Config  string        `json:"config,omitzero" doc:"the file that was read"`
	Changes []tool.Change `json:"changes" doc:"sources whose tools changed"`
	Failed  []Failed      `json:"failed" doc:"sources that are not there, or not as their files say"`
	Restart []string      `json:"restart,omitempty" doc:"parts of the config that changed and take effect at the next start"`
}

// A Failed is a source that is not in the state that its files and the config describe.
type Failed struct {
	Source string `json:"source"`
	Error  string `json:"error"`
	Stays  bool   `json:"stays,omitzero" doc:"it keeps its previous tools"`
	Partly bool   `json:"partly,omitzero" doc:"only the tool that the error names is not there"`
}

// New makes the tool. The function reads the config and the files of the sources again; its error is the reason why the
// config was refused.
func New(reload func(context.Context) (Report, error)) *define.Set {
	run := func(ctx context.Context, c *define.Call, _ struct{}) (Report, error) {
		r, err := reload(ctx)
		if err != nil {
			e := *tool.AsError(err)
			e.Message = "the config was not reloaded; the one before it stays: " + e.Message
			return r, &e
		}
		c.Summary = fmt.Sprintf("reloaded; the tools of %d sources changed, %d sources failed", len(r.Changes), len(r.Failed))
		return r, nil
	}
	return define.NewSet(define.New(tool.Spec{
		Name: "reloadConfig", Effects: tool.Effects{Idempotent: true},
		Description: "Reads the config and the files of the sources again, and says what changed. For operators.",
	}, define.ForOperators("use reloadConfig", run)))
}

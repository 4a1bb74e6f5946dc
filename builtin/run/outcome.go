package run

import (
	"fmt"
	"strings"

	"toolpost/builtin/define"
	"toolpost/host/forks"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// ended notes how the process of a program ended.
func (e *ending) ended(exit process.Exit) {
	if exit.Code == forks.NoWalls {
		e.broken = tool.Errorf(tool.CodeUnavailable, "%s was not run: its walls could not be built", Name).
			Because(sandbox.CoverageMissing)
	}
	if exit != (process.Exit{}) {
		e.exit = exit.String()
	}
}

// outcome makes a result from the ending of a program. Every ending counts as the program's own failure: if it counted as
// ours, one caller's bad programs would make the tool unavailable to all others.
func (p *program) outcome(c *define.Call, e ending) (output, error) {
	out := output{
		Stdout: p.stdout.Text(), Stderr: p.stderr.Text(), Calls: p.made,
		Truncated: p.stdout.Truncated() || p.stderr.Truncated(), Result: []byte("null"),
	}
	switch {
	case e.said != nil && e.said.raised == nil:
		out.Result = e.said.result
		if c.Summary = p.summary(out); e.said.left > 0 {
			c.Summary += fmt.Sprintf("; %s not awaited, and cancelled", wereNot(e.said.left))
		}
		return out, nil
	case e.said != nil:
		c.Failure = p.failure(e.said.raised, out)
		return out, nil
	case e.broken != nil && tool.AsError(e.broken).Reason == sandbox.CoverageMissing:
		return out, e.broken
	case e.broken != nil:
		c.Failure = tool.Failed("broken_channel", "the program was ended: "+e.broken.Error()).Failure
	case e.why != "":
		c.Failure = tool.Failed("limit", "the program was ended: "+
			strings.Replace(e.why, "set by walls.", "set by code.run.", 1)).Failure
	case e.exit != "":
		c.Failure = tool.Failed("crashed", "the program ended before it returned: "+e.exit+lastWords(out.Stderr)).Failure
	default:
		c.Summary = p.summary(out) // it exited by itself without a result
		return out, nil
	}
	c.Failure.Details = printed(out, nil)
	return out, nil
}

func lastWords(stderr string) string {
	if last := process.LastLines(stderr); last != "" {
		return "; the last it wrote to stderr: " + last
	}
	return ""
}

func (p *program) summary(out output) string {
	text := "the program returned after " + define.Count(out.Calls, "call")
	if out.Truncated {
		text += fmt.Sprintf("; it printed more than the %d bytes that are given: print less, or return it", p.t.o.MaxOutput)
	}
	return text
}

// wereNot begins a clause about calls.
func wereNot(n int) string {
	if n == 1 {
		return "1 call that still ran was"
	}
	return fmt.Sprintf("%d calls that still ran were", n)
}

// failure describes an uncaught exception to the caller: what it is, and its place in the program's own lines.
func (p *program) failure(r *raised, out output) *tool.Error {
	trace, kind := p.traceback(r), cut(r.Type, 200)
	message := kind
	if r.Message != "" {
		message += ": " + cut(r.Message, 4<<10)
	}
	if trace != "" {
		message += "\n" + trace
	}
	e := tool.Failed("", message).Failure
	e.Details = printed(out, map[string]any{"type": kind, "traceback": trace, "code": cut(r.Code, 200)})
	return e
}

// printed adds what a failed program has printed to the details of its error.
func printed(out output, details map[string]any) []byte {
	all := map[string]any{"stdout": out.Stdout, "stderr": out.Stderr, "calls": out.Calls, "truncated": out.Truncated}
	for name, value := range details {
		if value != "" {
			all[name] = value
		}
	}
	b, _ := strictjson.Marshal(all) // texts and numbers
	return b
}

// traceback shows the frames, the outermost first, each with its line of the program.
func (p *program) traceback(r *raised) string {
	lines := strings.Split(p.code, "\n")
	var b strings.Builder
	for i, f := range r.Frames {
		if i == maxFrames {
			break
		}
		fmt.Fprintf(&b, "  line %d, in %s", f.Line, cut(f.In, 200))
		if 0 < f.Line && f.Line <= len(lines) {
			b.WriteString(": " + cut(strings.TrimSpace(lines[f.Line-1]), 160))
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}

const maxFrames = 20

// cut shortens a text for display: a program's message may be anything.
func cut(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

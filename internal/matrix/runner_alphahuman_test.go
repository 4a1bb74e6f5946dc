package matrix

import "fmt"

// skill returns four sources of one skill, because a timeout and a tier belong to a source. A skill that hangs is
// replaced at once, for the next door that calls it.
func skill(name, folder string) func(*house) string {
	return func(h *house) string {
		head := fmt.Sprintf("protocol: alphahuman, skill: %[1]s, env: {MATRIX_ASSETS: %[2]q}, walls: {write: [%[2]q]}", folder, h.assets)
		return fmt.Sprintf("- {name: %[1]s, %[2]s}\n- {name: %[1]s-slow, %[2]s, timeout: %[3]s, grace: %[3]s}\n"+
			"- {name: %[1]s-wait, %[2]s, grace: %[3]s}\n- {name: %[1]s-danger, %[2]s, tier: 3}\n",
			name, head, hangFor)
	}
}

func skillTool(source string, tools ...string) func(string) string {
	return func(tool string) string {
		switch tool {
		case "hang":
			return source + "-slow"
		case "wait", "danger":
			return source + "-" + tool
		}
		return in(source, tools...)(tool)
	}
}

const (
	skillText   = "the content of a skill's result is text: structured output arrives as JSON text"
	skillReason = "a skill's failure is a result with isError and words, and has no name"
	skillAsk    = "the contract has nothing by which a skill asks: a result is its content"
)

func skillOne() *runner {
	return &runner{
		name: "skill v1", about: "a skill of the contract",
		sources: skill("one", "skill1"),
		where:   skillTool("one", "echo", "fail", "report", "large"),
		carries: carries{
			output:   {asText, skillText},
			large:    {asText, skillText},
			reason:   {never, skillReason},
			progress: {asLog, "the contract has no events: what a skill writes to stderr is its log"},
			state:    {never, "the contract gives a skill no way to the state of a session"},
			asset:    {never, "the contract has no assets: a result is its content"},
			choice:   {never, "the contract has no events by which a skill offers choices: a result is its content"},
			question: {never, skillAsk},
		},
	}
}

func skillTwo() *runner {
	return &runner{
		name: "skill v2", about: "a skill of the second generation",
		sources: skill("two", "skill2"),
		where:   skillTool("two", "echo", "fail", "report", "patch", "asset", "choose", "large"),
		carries: carries{
			output:   {asText, skillText},
			large:    {asText, skillText},
			reason:   {never, skillReason},
			question: {never, skillAsk},
		},
		patch:     `{"skills":{"matrix-two":{"torch":{"lit":true}}}}`,
		inSession: true,
	}
}

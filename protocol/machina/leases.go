package machina

import (
	"cmp"
	"context"
	"strings"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// LeaseTier returns the tier from which a toolhost in a mode requires leases, regardless of other requirements: the first
// harmful tier if the environment demands it, but none for a single run, whose request has no place for a token.
func LeaseTier(m Mode, getenv func(string) string) int {
	if v := getenv("MACHINA_LEASE_ENFORCE"); m == Serve && (v == "1" || v == "true") {
		return 1
	}
	return 0
}

// TierOf returns the tier of the lease that a toolhost requires: that of the tool, but by its aid at least that of a system
// tool or of a dangerous one, whatever it declares.
func TierOf(spec *tool.Spec) int {
	switch aid := offers(spec.Source, []*tool.Spec{spec})[0].aid; {
	case strings.HasPrefix(aid, "AID.GENESIS."):
		return tool.MaxTier
	case strings.HasPrefix(aid, "AID.SHELL."):
		return max(spec.Tier, 2)
	}
	return spec.Tier
}

// The tools behind the lease commands: a door does not bypass the engine. Their names include their source, because a config
// may have a source called lease.
const (
	toolLeaseIssue = "toolpost.lease.issue"
	toolLeaseGC    = "toolpost.lease.gc"
)

// The bounds of a lease's time in milliseconds. Like existing toolhosts we clamp values outside of them.
const (
	minTTL = 1_000
	maxTTL = 300_000
)

// leaseIssued is the answer of _lease.issue.
type leaseIssued struct {
	OK      bool   `json:"ok"`
	TokenID string `json:"token_id"`
	ToolAID string `json:"tool_aid"`
	Tier    int    `json:"tier"`
}

// leaseCounts is the answer of _lease.gc.
type leaseCounts struct {
	OK       bool `json:"ok"`
	Active   int  `json:"active"`
	Issued   int  `json:"issued"`
	Consumed int  `json:"consumed"`
	Rejected int  `json:"rejected"`
}

// leaseWanted is the request of _lease.issue.
type leaseWanted struct {
	ToolAID string `json:"tool_aid"`
	Tier    *int   `json:"tier"`
	TTLms   *int64 `json:"ttl_ms"`
}

// issueLease issues a lease for one tool of this source, or for any. Its fields may be beside the aid or in the input, which
// takes precedence.
func (o *host) issueLease(ctx context.Context, line []byte, req *request) any {
	var want leaseWanted
	if err := cmp.Or(strictjson.Unmarshal(line, &want), strictjson.Unmarshal(req.args, &want)); err != nil {
		return refusal{Error: "invalid lease request: " + clip(err.Error())}
	}
	args := map[string]any{"tool": "*"}
	if want.ToolAID != "*" {
		spec := o.byAID[want.ToolAID]
		if spec == nil {
			return refusal{Error: notFound + ": " + want.ToolAID}
		}
		args["tool"] = spec.Name
	}
	if want.Tier != nil {
		args["tier"] = *want.Tier
	}
	if want.TTLms != nil {
		args["ttl_ms"] = min(max(*want.TTLms, minTTL), maxTTL)
	}
	var given struct {
		Token string `json:"token"`
		Tier  int    `json:"tier"`
	}
	if answer := o.lease(ctx, toolLeaseIssue, args, &given); answer != any(&given) {
		return answer
	}
	return leaseIssued{OK: true, TokenID: given.Token, ToolAID: want.ToolAID, Tier: given.Tier}
}

// lease calls a lease tool and decodes its result into answer.
func (o *host) lease(ctx context.Context, name string, args map[string]any, answer any) any {
	raw, err := strictjson.Marshal(args)
	if err != nil {
		return refusal{Error: inWords(tool.AsError(err))}
	}
	r, err := o.h.Invoke(ctx, &tool.Call{Tool: name, Args: raw, Trace: o.runID, Caller: o.Caller}, tool.Discard)
	if err == nil && !r.OK {
		err = tool.Errorf(tool.CodeInternal, "%s failed", name)
	}
	if err != nil {
		return refusal{Error: inWords(tool.AsError(err))}
	}
	if err := strictjson.Unmarshal(r.Output, answer); err != nil {
		return refusal{Error: inWords(tool.Errorf(tool.CodeInternal, "%s gave no lease: %w", name, err))}
	}
	return answer
}

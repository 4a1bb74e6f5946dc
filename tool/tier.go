package tool

// A TierFrom says who settled the tier of a tool, for people who wonder about it.
type TierFrom string

// Who settles a tier. The first that has something to say does.
const (
	TierConfig  TierFrom = "config"  // the config of its source
	TierTool    TierFrom = "tool"    // the tool itself, or the server that brings it
	TierEffects TierFrom = "effects" // its effects, see Effects.Tier
	TierDefault TierFrom = "default" // nobody: what a tool does is not known
)

// The bounds of tiers, and that of a tool which says nothing about its effects: it is not safe, and it is not known to
// do harm.
const (
	MaxTier     = 3
	unknownTier = 1
)

// CheckTier refuses a declared tier that is none. Nil: nothing was said.
func CheckTier(tier *int) error {
	if tier != nil && (*tier < 0 || *tier > MaxTier) {
		return Errorf(CodeInvalidInput, "tier must be 0, 1, 2 or 3, not %d", *tier)
	}
	return nil
}

// Declare settles a tier by somebody's word, which goes before what the effects say, also where it is 0. Nil: nothing
// was said.
func (s *Spec) Declare(tier *int, by TierFrom) {
	if tier != nil {
		s.Tier, s.TierFrom = *tier, by
	}
}

// TierDeclared reports whether somebody said the tier of the tool.
func (s *Spec) TierDeclared() bool {
	return s.TierFrom == TierConfig || s.TierFrom == TierTool || s.TierFrom == "" && s.Tier != 0
}

// SettleTier gives the tool its tier where nobody has declared one. A tier that is none is taken for the worst.
func (s *Spec) SettleTier() {
	switch {
	case s.Tier < 0 || s.Tier > MaxTier:
		s.Tier, s.TierFrom = MaxTier, TierTool
	case s.TierDeclared():
		if s.TierFrom == "" {
			s.TierFrom = TierTool
		}
	case s.TierFrom == TierDefault, s.Effects == Effects{Idempotent: s.Effects.Idempotent}:
		s.Tier, s.TierFrom = unknownTier, TierDefault
	default:
		s.Tier, s.TierFrom = max(s.Tier, s.Effects.Tier()), TierEffects
	}
}

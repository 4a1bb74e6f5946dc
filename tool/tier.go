package tool

// A TierFrom tells people what the tier of a tool was derived from.
type TierFrom string

// The origins of a tier, in order of precedence.
const (
	TierConfig  TierFrom = "config"  // the config of its source
	TierTool    TierFrom = "tool"    // the tool itself, or the server that brings it
	TierEffects TierFrom = "effects" // its effects, see Effects.Tier
	TierDefault TierFrom = "default" // none of them: the effects of the tool are unknown
)

// The highest tier, and the tier of a tool that declares no effects: it is not safe, and not known to do harm.
const (
	MaxTier     = 3
	unknownTier = 1
)

// CheckTier refuses an invalid declared tier. Nil means that none was declared.
func CheckTier(tier *int) error {
	if tier != nil && (*tier < 0 || *tier > MaxTier) {
		return Errorf(CodeInvalidInput, "tier must be 0, 1, 2 or 3, not %d", *tier)
	}
	return nil
}

// Declare sets a declared tier, which takes precedence over the effects even if it is 0. Nil means that none was
// declared.
func (s *Spec) Declare(tier *int, by TierFrom) {
	if tier != nil {
		s.Tier, s.TierFrom = *tier, by
	}
}

// TierDeclared reports whether the tier of the tool was declared.
func (s *Spec) TierDeclared() bool {
	return s.TierFrom == TierConfig || s.TierFrom == TierTool || s.TierFrom == "" && s.Tier != 0
}

// SettleTier sets the tool's tier if none was declared. An invalid tier counts as the highest.
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

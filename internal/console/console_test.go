package console

import (
	"os"
	"path/filepath"
	"testing"

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// TestTheConsoleInABrowser runs all tests in one browser: starting one costs more than most of them.
func TestTheConsoleInABrowser(t *testing.T) {
	t.Parallel()
	w := world{browser: browser.Start(t), bin: served.Build(t)}
	w.server = w.serve(t, plain)
	for _, one := range []struct {
		name string
		test func(*testing.T, world)
	}{
		{"a link signs in once", linkSignsInOnce},
		{"a token signs in, and signing out ends it", tokenSignsIn},
		{"a revoked token ends its session", revokedTokenEndsSession},
		{"a person signs in with a provider", personSignsIn},
		{"a person is denied", personIsDenied},
		{"a person is refused", personIsRefused},
		{"a person outlives other keys", personOutlivesOtherKeys},
		{"the session of a person ends", sessionOfAPersonEnds},
		{"the rights of a person are named", rightsOfAPersonAreNamed},
		{"without a caller there is nothing but the shell", nothingButTheShell},
		{"a page of another origin changes nothing", foreignPageChangesNothing},
		{"keys and the palette lead everywhere", keysLeadEverywhere},
		{"on a phone the navigation is at the bottom", navigationOnAPhone},
		{"a lost connection comes back", lostConnectionComesBack},
		{"a restart asks to sign in and goes on at the same place", restartAsksToSignIn},
		{"a server that is started again is found again", serverComesBack},
		{"the first view is small and asks no other server", firstViewIsSmall},
		{"the overview is first and tells how it is", overviewIsFirst},
		{"each number of the overview leads somewhere", numbersLeadSomewhere},
		{"the overview shows what waits", overviewShowsWhatWaits},
		{"a tool that is held back is approved", heldToolIsApproved},
		{"live uses its width", liveUsesItsWidth},
		{"charts keep their labels on a phone", chartsKeepTheirLabels},
		{"a source is added with a form", sourceIsAdded},
		{"an MCP server is added with a form", serverIsAdded},
		{"each kind of tool is called from its form", callsEachKindOfTool},
		{"a call is watched and cancelled", callIsWatchedAndCancelled},
		{"a lease is issued and used", leaseIsIssuedAndUsed},
		{"the audit is a question in the address", auditIsAQuestionInTheAddress},
		{"a log that was altered is seen", alteredLogIsSeen},
		{"a lease is issued and used in Operate", leaseOfOperateIsUsed},
		{"a call is approved, remembered and denied", callIsApprovedAndDenied},
		{"an approval stands where the call is", approvalStandsWhereTheCallIs},
		{"operator calls are shown by a switch", operatorCallsAreShown},
		{"a token is issued, shown once and revoked", tokenIsIssuedAndRevoked},
		{"the fleet is a map", fleetIsAMap},
		{"a job that asks is answered in Operate", jobIsAnswered},
		{"the config shows its errors at their lines", configShowsItsErrors},
		{"what is hostile is shown as text", hostileContentIsText},
		{"a stream of calls is bounded", streamIsBounded},
		{"a click is for what was pressed", clickIsForWhatWasPressed},
		{"nothing that comes twice stops a view", nothingTwiceStopsAView},
		{"accounts are connected", accountsAreConnected},
		{"axe finds nothing", axeFindsNothing},
		{"the adventure is played", adventureIsPlayed},
		{"a turn survives a lost connection", turnSurvivesALostConnection},
		{"a plan is coloured as it runs", planIsColoured},
		{"a hostile story is text", hostileStoryIsText},
		{"axe finds nothing in stories and plans", axeFindsNothingInStories},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting for pages and servers
			one.test(t, w)
		})
	}
}

// A world is the state that all tests share.
type world struct {
	browser *browser.Browser
	bin     string
	server  *served.Server // for tests that do not change it; others sign in there at the same time
}

// serve starts a server in a new folder with a config.
func (w world) serve(t *testing.T, config string) *served.Server {
	t.Helper()
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), []byte(config), 0o600))
	return served.Start(t, w.bin, dir)
}

// plain is a config with only files to read.
const plain = "sources: [{name: files, protocol: builtin, roots: [{path: .}]}]\ndoors: {http: {}}\n"

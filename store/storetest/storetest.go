// Package storetest is the suite that every kind of store passes: the same promises, whatever keeps them.
package storetest

import (
	"database/sql"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/engine/audit"
	"toolpost/store"
	"toolpost/tool"
)

// A Kind is a kind of store to test. An address names one database of the kind.
type Kind struct {
	New  func(t testing.TB) (address string)                      // makes a database, for as long as the test runs
	Open func(address string, o store.Options) (*store.DB, error) // opens it, also from another program
	Raw  func(t testing.TB, address string) *sql.DB               // opens it directly, bypassing the store
	// it is a separate server: each step takes longer, and fewer are made
	Far bool
	// translates a dump of SQLite to this kind; nil if none is needed
	Dump func(sqlite string) string
	// lists what there is in a database: its tables with their columns, its indexes and views
	Schema string
}

// key signs the audit logs of the suite.
func key() ([]byte, error) { return []byte("the key of the suite"), nil }

// options returns the options of all stores of the suite. The Grace is short: it is enough for a program that only has
// to come back.
func options() store.Options { return store.Options{Key: key, Grace: 2 * time.Second} }

func (k Kind) open(t testing.TB, address string) *store.DB {
	t.Helper()
	return k.openWith(t, address, options())
}

func (k Kind) openWith(t testing.TB, address string, o store.Options) *store.DB {
	t.Helper()
	db := must[*store.DB](t)(k.Open(address, o))
	t.Cleanup(func() { gives(t, db.Close(), success, "closing") })
	return db
}

// made opens a new database.
func (k Kind) made(t testing.TB) (address string, db *store.DB) {
	t.Helper()
	address = k.New(t)
	return address, k.open(t, address)
}

// fresh is made without the address.
func (k Kind) fresh(t testing.TB) *store.DB {
	t.Helper()
	return k.open(t, k.New(t))
}

// two opens a new database twice, as two programs would.
func (k Kind) two(t testing.TB) (mine, other *store.DB) {
	t.Helper()
	address, db := k.made(t)
	return db, k.open(t, address)
}

// Main runs the tests of a package, or is the other program that they have started. TestMain calls it.
func Main(m *testing.M, k Kind) int {
	if work := os.Getenv(childWork); work != "" {
		return child(k, work)
	}
	return m.Run()
}

// Run runs the suite.
func Run(t *testing.T, k Kind) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Kind)
	}{
		{"Audit/ARecordComesBackAsItWas", recordComesBack},
		{"Audit/WhatNobodyWaitsForIsWrittenSoonAndInOrder", laterRecords},
		{"Audit/NotesAreMadeAndTakenAwayWithThoseOfOthers", notesOfMany},
		{"Audit/HostileTextIsKeptHarmless", hostileText},
		{"Audit/ManyWritersMakeOneChain", oneChain},
		{"Audit/QuestionsAreAnsweredAsCountingWould", questions},
		{"Audit/WhoFollowsMissesNothing", followed},
		{"Audit/AnySingleChangeIsFound", anyChange},
		{"Audit/AnchorsProveWhatLanesWere", anchored},
		{"Audit/LanesOfProgramsThatAreGoneEnd", goneLanes},
		{"Audit/LanesRemovedTooEarlyAreMissed", forgedCuts},
		{"Audit/AForgedHeadIsNotBuiltOn", forgedHead},
		{"Audit/APointThatWasKeptElsewhereIsLookedFor", keptPoints},
		{"Audit/PruningKeepsTheChain", pruning},
		{"Audit/CallsOfAProgramThatIsGoneAreRecordedAsLost", lostCalls},
		{"Audit/AReceiptIsKeptAsItCame", receiptKept},
		{"Sessions/PatchesMergeAsTheModelDoes", patchesMerge},
		{"Sessions/ManyWritersLoseNothing", patchesRaced},
		{"Sessions/WhatWasWrittenIsReadByEveryConnection", readAsWritten},
		{"Sessions/WhoSawAnEarlierVersionIsRefused", optimistic},
		{"Sessions/CallersDoNotShareAndStateIsBounded", sessionBounds},
		{"Sessions/EarlierVersionsAreAsTheyWere", earlierVersions},
		{"Sessions/WhoWatchesSeesEveryVersion", watching},
		{"Sessions/AStoreWithoutMarksKeepsItsStates", withoutMarks},
		{"Leases/OneCallOfOneToolInTime", leaseLife},
		{"Leases/ALeaseOfACallerIsNobodyElses", leasesOfCallers},
		{"Leases/RacedByFourProgramsEachIsUsedOnce", leasesRaced},
		{"Leases/RacedByProgramsThatRevokeEachIsUsedOrRevoked", leasesRevoked},
		{"Tokens/AreValidUntilTheyEndOrAreRevoked", tokenLife},
		{"Pins/AreKeptAndChangedByThoseWhoKnowThem", pins},
		{"Quotas/AreExactForThreePrograms", quotas},
		{"Quotas/CountWhatIsNotReportedAsUsed", unreported},
		{"Quotas/CountWhatRunsInAllPrograms", concurrency},
		{"Fleet/TicketsLetAsManyNodesJoinAsTheyHaveUses", fleetTickets},
		{"Fleet/ConcurrentNodesUseNoTicketTooOften", fleetRaced},
		{"Fleet/MembersHaveNamesOfTheirOwnUntilTheyAreEvicted", fleetMembers},
		{"Fleet/BadTicketsAndNodesAreRefused", fleetRefused},
		{"Fleet/SharesOfCallsAreReplacedAsAWhole", fleetShares},
		{"Approvals/AreKeptFoundAndChangedByOneAtATime", approvals},
		{"Approvals/RacedByFourProgramsEachIsUsedOnce", approvalsRaced},
		{"Approvals/WakeTheJobsThatWaitForThem", approvalsOfJobs},
		{"Approvals/AJobThatOnlyAskedHasNotBegun", approvalsOfOrphans},
		{"Approvals/ARunTakenForDeadDoesNotEndTheNextOne", approvalsTakenOver},
		{"Outcomes/AKeyIsClaimedOnce", outcomes},
		{"Outcomes/AQuestionIsAnsweredByOne", marks},
		{"Jobs/AreBegunByOneAndEndOnce", jobLife},
		{"Jobs/EndTogetherWithTheirRecord", jobRecorded},
		{"Jobs/AskAndAreAnsweredByOne", jobQuestions},
		{"Jobs/AreBegunByAProgramThatHasTheirTool", jobNeeds},
		{"Jobs/ProgramsHearOfEachOther", jobsHeard},
		{"Jobs/RacedByFourProgramsEachIsBegunOnce", jobsRaced},
		{"Jobs/OfAProgramThatIsGoneAreFound", jobsFound},
		{"Plans/BelongToOneProgramAndEndOnce", planLife},
		{"Plans/OfAProgramThatIsGoneAreGoneOnWith", plansFound},
		{"Programs/WithOtherProcessNumbersAreNotTakenForDead", otherNamespaces},
		{"Programs/ThatAreStoppedForAWhileKeepWhatTheyBegan", stopped},
		{"Programs/TakenForDeadAddNothing", takenForDead},
		{"Outcomes/OfAProgramThatIsGoneAreLostForTheWholeTime", lostOutcome},
		{"Assets/AreKeptByContentUntilTheyExpire", assets},
		{"Assets/AreOpenToWhoBroughtThem", assetCallers},
		{"Store/AllProgramsHaveTheKeyOfTheFirst", sharedKey},
		{"Store/AGroupFailsNotBecauseOfOne", groupFails},
		{"Store/WhatWasRefusedLateLeavesNothing", refusedLate},
		{"Store/StatementsRunInTheirOrder", inOrder},
		{"Store/TheLogOfAnEarlierVersionVerifiesAndGoesOn", earlierLog},
		{"Store/ANewStoreHasTheTablesOfOneThatHasGrown", sameTables},
		{"Store/AColumnMoreChangesNothingOfTheRowsBefore", moreColumns},
		{"Store/OfALaterVersionIsRefusedInWords", laterStore},
		{"Store/ProgramsAreUpgradedOneByOne", upgrades},
		{"Store/NothingAcknowledgedIsLostByKill", kills},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, k) })
	}
	if k.Far { // the others have one writer
		t.Run("Audit/LanesOverlapAndAreFollowedInOrder", func(t *testing.T) { overlapping(t, k) })
		t.Run("Store/HistoriesAreThoseOfOneProgramAtATime", func(t *testing.T) { linearizable(t, k) })
	}
}

// fewer returns a fifth of n if each step takes longer.
func (k Kind) fewer(n int) int {
	if k.Far {
		return n / 5
	}
	return n
}

// reports fails the test if the log is not found to be damaged.
func reports(t testing.TB, db *store.DB, what string, points ...audit.Point) {
	t.Helper()
	r := must[*audit.Report](t)(db.Audit().Verify(t.Context(), points...))
	holds(t, len(r.Findings) > 0, "not found: %s", what)
}

func must[T any](t testing.TB) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// errOf returns the error alone.
func errOf[T any](_ T, err error) error { return err }

// works ends the test on an error.
func works(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", said(what), err)
	}
}

// said formats a message.
func said(what []any) string {
	if len(what) == 0 {
		return "it"
	}
	return fmt.Sprintf(what[0].(string), what[1:]...)
}

// gives checks for an error with a code, or for success.
func gives(t testing.TB, err error, code tool.Code, what ...any) {
	t.Helper()
	if tool.CodeOf(err) != code {
		t.Errorf("%s: got %v, want %q", said(what), err, code)
	}
}

const success tool.Code = ""

func equal[T any](t testing.TB, got, want T, what ...any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: %s", said(what), d)
	}
}

// holds checks a condition.
func holds(t testing.TB, so bool, format string, args ...any) {
	t.Helper()
	if !so {
		t.Errorf(format, args...)
	}
}

// needs is holds for a condition that the rest of the test depends on.
func needs(t testing.TB, so bool, format string, args ...any) {
	t.Helper()
	if !so {
		t.Fatalf(format, args...)
	}
}

// together runs something n times concurrently.
func together(n int, run func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { run(i) })
	}
	wg.Wait()
}

// run runs statements directly, bypassing the store.
func run(t testing.TB, raw *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		works(t, errOf(raw.ExecContext(t.Context(), s)), "%s", s)
	}
}

// count queries the database directly for a number.
func count(t testing.TB, raw *sql.DB, query string) (n int) {
	t.Helper()
	works(t, raw.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// sound fails the test if the log does not verify.
func sound(t testing.TB, db *store.DB, points ...audit.Point) *audit.Report {
	t.Helper()
	r := must[*audit.Report](t)(db.Audit().Verify(t.Context(), points...))
	needs(t, len(r.Findings) == 0, "the log is not sound: %v", r.Findings)
	return r
}

func name(format string, args ...any) string { return fmt.Sprintf(format, args...) }

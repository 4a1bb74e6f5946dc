package postgres_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"toolpost/engine/member"
	"toolpost/internal/connectiontest"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/store"
	"toolpost/store/postgres"
	"toolpost/store/storetest"
	"toolpost/tool"
)

func kind(s *pg.Server) storetest.Kind {
	return storetest.Kind{New: s.Database, Open: postgres.Open, Raw: pg.Raw, Far: true, Dump: dump, Schema: schema}
}

const schema = `SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || COALESCE(column_default, '')
		FROM information_schema.columns WHERE table_schema = 'public'
	UNION SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1`

// dump translates a dump of SQLite to PostgreSQL.
func dump(sqlite string) string {
	words := strings.NewReplacer("BLOB", "BYTEA", "INTEGER PRIMARY KEY", "BIGINT PRIMARY KEY")
	return regexp.MustCompile(`X'([0-9A-F]*)'`).ReplaceAllString(words.Replace(sqlite), `'\x$1'`)
}

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, kind(nil))) }

func TestSuite(t *testing.T) { storetest.Run(t, kind(pg.New(t))) }

func TestConnectionsAreChangedByThoseWhoKnowTheirVersion(t *testing.T) {
	address := pg.New(t).Database(t)
	connectiontest.Run(t, open(t, address, store.Options{}).Connections(), open(t, address, store.Options{}).Connections())
}

func TestHistoriesAreWrongWithoutGuards(t *testing.T) { storetest.Guards(t, kind(pg.New(t))) }

func TestAURLThatCannotBeReadIsRefusedWithoutItsPassword(t *testing.T) {
	_, err := postgres.Open("postgres://ada:secret@host:notaport/db", store.Options{})
	if tool.CodeOf(err) != tool.CodeInvalidInput || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestAServerThatIsNotThereIsUnavailableSoon(t *testing.T) {
	for _, address := range []string{"postgres:///x?host=" + t.TempDir(), "postgres://127.0.0.1:1/x"} {
		db := open(t, address, store.Options{})
		_, err := db.Sessions().State(t.Context(), "ada", "s")
		if tool.CodeOf(err) != tool.CodeUnavailable || strings.Count(err.Error(), "connect: ") != 1 { // said once
			t.Error(err)
		}
		// A log that is out of reach is not known to be altered.
		_, err = db.Audit().Verify(t.Context())
		kit.Refused(t, err, tool.CodeUnavailable, "connect: ")
	}
}

const endOthers = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity ` +
	`WHERE pid <> pg_backend_pid() AND datname = current_database()`

func TestTheStoreOutlivesARestartOfItsServer(t *testing.T) {
	s := pg.New(t)
	address := s.Database(t)
	db, err := postgres.Open(address, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	patch := func(key string) error {
		return db.Sessions().Patch(t.Context(), "ada", "s", []map[string]any{{key: true}})
	}
	if err := patch("a"); err != nil {
		t.Fatal(err)
	}
	// All connections end, as they do when the server restarts.
	if _, err := pg.Raw(t, address).ExecContext(t.Context(), endOthers); err != nil {
		t.Fatal(err)
	}
	if err := patch("b"); err != nil {
		t.Error(err)
	}
	if got, err := db.Sessions().State(t.Context(), "ada", "s"); err != nil || string(got) != `{"a":true,"b":true}` {
		t.Errorf("%s, %v", got, err)
	}
}

// A program whose clock is wrong keeps the keys and marks of calls as long as others do: else they would run again. So it does
// with the tickets of a fleet.
func TestKeysAreKeptByTheClockOfTheServer(t *testing.T) {
	address := pg.New(t).Database(t)
	raw := pg.Raw(t, address)
	const clock = `early.clock_timestamp()` // ahead of this program's, but not so much that the server is refused
	for _, statement := range []string{
		`CREATE SCHEMA early`,
		`CREATE FUNCTION ` + clock + ` RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + interval ''4 minutes'''`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = early, pg_catalog', current_database()); END $$`,
	} {
		kit.Must(raw.ExecContext(t.Context(), statement))(t)
	}
	db := kit.Must(postgres.Open(address, store.Options{}))(t)
	defer db.Close()
	o, key := db.Outcomes(), [32]byte{1}
	kit.Must(o.Claim(t.Context(), key, key, "", 2*time.Minute))(t)
	kit.OK(t, o.Settle(t.Context(), key, []byte(`1`), 2*time.Minute))
	kit.Must(o.Mark(t.Context(), [32]byte{2}, key, 2*time.Minute))(t)
	ticket := member.Ticket{Digest: strings.Repeat("ab", 32), Role: member.Worker, Uses: 1}
	kit.OK(t, db.Fleet().AddTicket(t.Context(), ticket, 2*time.Minute))
	var kept int
	kit.OK(t, raw.QueryRowContext(t.Context(), `SELECT COUNT(*)
		FROM (SELECT expires_at FROM early.outcome UNION ALL SELECT expires_at FROM early.fleet_ticket) AS ends
		WHERE expires_at > EXTRACT(EPOCH FROM `+clock+`) * 1000000`).Scan(&kept))
	if kept != 3 {
		t.Errorf("%d of 3 are kept for another program", kept)
	}
	if again := kit.Must(o.Claim(t.Context(), key, key, "", 2*time.Minute))(t); again.Mine || string(again.Result) != "1" {
		t.Errorf("%+v", again)
	}
}

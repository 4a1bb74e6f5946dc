package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// created finds the names of tables in migrations, so that a later table need not be added here.
var created = regex.Lazy(`CREATE TABLE (\w+)`)

// The tables that begin with a row, and the table of the programs that have a store open: those of one store are not
// those of another.
const (
	pinChanges = "pin_change"
	programs   = "program"
)

// tables lists the tables of a store.
func (db *DB) tables() (names []string) {
	for _, step := range db.steps {
		for _, statement := range step {
			for _, m := range created().FindAllStringSubmatch(statement, -1) {
				if m[1] != programs {
					names = append(names, m[1])
				}
			}
		}
	}
	return names
}

// CopyTo copies the store, as it is at one moment, into an empty one, of any kind, in one transaction: all of it
// arrives, or nothing. Other programs may use db meanwhile; what they add later is not in the copy, and calls that they
// have begun are lost there, as after a crash.
func (db *DB) CopyTo(ctx context.Context, to *DB) error {
	return db.Read(ctx, func(r *database.Reader) error {
		return to.Do(true, func(t *database.Tx) error {
			for _, table := range to.tables() {
				if err := mustBeEmpty(t, table); err != nil {
					return err
				}
				if err := take(t, r, table); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func mustBeEmpty(t *database.Tx, table string) error {
	if table == pinChanges {
		return t.Exec(`DELETE FROM ` + table)
	}
	full, err := database.Row(t, `SELECT 1 FROM `+table+` LIMIT 1`, nil, new(int))
	if err == nil && full {
		err = tool.Errorf(tool.CodeConflict, "the store to copy to is not empty: it has rows in %s; name a new one", table)
	}
	return err
}

// take copies a table.
func take(t *database.Tx, from *database.Reader, table string) error {
	var add string
	return from.Each(func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		if add == "" {
			add = fmt.Sprintf(`INSERT INTO %s (%s) VALUES (?%s)`, table, strings.Join(columns, ", "),
				strings.Repeat(", ?", len(columns)-1))
		}
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		return t.Exec(add, values...)
	}, `SELECT * FROM `+table)
}

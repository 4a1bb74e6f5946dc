package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"time"

	"toolpost/identity"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A TokenTable keeps the tokens of callers. The table has their digests, so reading it reveals no token.
type TokenTable struct{ db *database.DB }

// Tokens returns the table of callers' tokens.
func (db *DB) Tokens() *TokenTable { return &TokenTable{db.DB} }

// The limits of a token, and how long it is kept after its end.
const (
	maxNote     = 256
	maxGranted  = 64 // roles, and tools
	tokenMemory = 30 * 24 * time.Hour
)

// Issue makes a token with the caller, roles, tools and note of t. A ttl of 0 means for ever. Only the caller gets the
// token.
func (k *TokenTable) Issue(_ context.Context, t identity.Token, ttl time.Duration) (token string, err error) {
	if err := checkToken(&t, ttl); err != nil {
		return "", err
	}
	roles, err := strictjson.Marshal(append([]string{}, t.Roles...))
	tools, err2 := strictjson.Marshal(append(tool.Patterns{}, t.Tools...))
	if err := errors.Join(err, err2); err != nil {
		return "", err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails: it ends the program instead
	token = identity.TokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	err = k.db.Do(true, func(w *database.Tx) error {
		now := time.Now()
		over := database.Micros(now.Add(-tokenMemory))
		if err := w.Exec(`DELETE FROM token WHERE expires_at < ? OR revoked_at < ?`, over, over); err != nil {
			return err
		}
		expires := sql.NullInt64{Int64: database.Micros(now.Add(ttl)), Valid: ttl > 0}
		return w.Exec(`INSERT INTO token (id, caller, roles, tools, listed, note, issued_at, expires_at) `+
			`VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			database.Digest(token), t.Caller, string(roles), string(tools), flag(t.Listed), t.Note, database.Micros(now), expires)
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

func checkToken(t *identity.Token, ttl time.Duration) error {
	switch {
	case t.Caller == "" || database.Plain(t.Caller, database.MaxName) != t.Caller:
		return tool.Errorf(tool.CodeInvalidInput, "a token needs the name of its caller, of at most %d bytes", database.MaxName)
	case len(t.Roles) > maxGranted || len(t.Tools) > maxGranted:
		return tool.Errorf(tool.CodeInvalidInput, "a token has at most %d roles and %d patterns of tools", maxGranted,
			maxGranted)
	case database.Plain(t.Note, maxNote) != t.Note:
		return tool.Errorf(tool.CodeInvalidInput, "the note of a token is text of at most %d bytes", maxNote)
	case ttl < 0 || ttl > 0 && ttl < time.Second || ttl > identity.MaxTokenTTL:
		return tool.Errorf(tool.CodeInvalidInput, "a token lasts from 1s to %v, or for ever with 0, not %v",
			identity.MaxTokenTTL, ttl)
	}
	return nil
}

const allIssued = `SELECT id, caller, roles, tools, listed, note, issued_at, expires_at, revoked_at FROM token`

// Lookup returns the token with that SHA-256, in hexadecimal digits, whatever its state, or false if there is none.
func (k *TokenTable) Lookup(ctx context.Context, digest string) (t identity.Token, ok bool, err error) {
	found, err := k.list(ctx, ` WHERE id = ?`, database.Plain(digest, database.MaxName))
	if len(found) == 0 {
		return t, false, err
	}
	return found[0], true, err
}

// Find returns a stored token, by its id or itself.
func (k *TokenTable) Find(ctx context.Context, id string) (t identity.Token, err error) {
	if id = database.Plain(identity.TokenID(id), database.MaxName); !isID(id) {
		return t, noToken(id)
	}
	return database.Only(k.db.Query(ctx), noToken(id), scanToken, allIssued+withID, id, behind(id))
}

// List returns the stored tokens, the newest first, at most most of them; 0 means all.
func (k *TokenTable) List(ctx context.Context, most int) ([]identity.Token, error) {
	return k.list(ctx, ` ORDER BY issued_at DESC, id LIMIT ?`, database.AtMost(most))
}

// Of returns the stored tokens of a caller.
func (k *TokenTable) Of(ctx context.Context, caller string) ([]identity.Token, error) {
	return k.list(ctx, ` WHERE caller = ?`, database.Plain(caller, database.MaxName))
}

func (k *TokenTable) list(ctx context.Context, which string, args ...any) ([]identity.Token, error) {
	return database.List(k.db.Query(ctx), scanToken, allIssued+which, args...)
}

// Revoke ends a token, by its id or itself: every program that shares the store refuses it from then on.
func (k *TokenTable) Revoke(_ context.Context, id string) error {
	if id = database.Plain(identity.TokenID(id), database.MaxName); !isID(id) {
		return noToken(id)
	}
	return k.db.Do(true, func(w *database.Tx) error {
		t, err := database.Only(w, noToken(id), scanToken, allIssued+withID, id, behind(id))
		if err != nil {
			return err
		}
		return revoke(w, "token", id, t.State)
	})
}

func noToken(id string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no token %q; `toolpost token list` shows those that there are", id)
}

// scanToken reads a row of allIssued.
func scanToken(rows *sql.Rows) (t identity.Token, err error) {
	var roles, tools string
	var revoked database.MicroTime
	err = rows.Scan(&t.ID, &t.Caller, &roles, &tools, &t.Listed, &t.Note, (*database.MicroTime)(&t.Issued),
		(*database.MicroTime)(&t.Expires), &revoked)
	if err != nil {
		return t, err
	}
	t.ID, t.State = t.ID[:min(idLength, len(t.ID))], identity.Live
	switch {
	case revoked != (database.MicroTime{}):
		t.State = identity.Revoked
	case !t.Expires.IsZero() && !time.Now().Before(t.Expires):
		t.State = identity.Expired
	}
	return t, errors.Join(strictjson.Unmarshal([]byte(roles), &t.Roles), strictjson.Unmarshal([]byte(tools), &t.Tools))
}

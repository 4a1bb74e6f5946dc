package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"time"

	"toolpost/identity"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A TokenTable keeps the tokens of callers. The table has their digests, not the tokens: who can read it still has
// none.
type TokenTable struct{ db *DB }

// Tokens keeps the tokens of callers.
func (db *DB) Tokens() *TokenTable { return &TokenTable{db} }

// The bounds of a token, and how long one is remembered after its end.
const (
	maxNote     = 256
	maxGranted  = 64 // roles, and tools
	tokenMemory = 30 * 24 * time.Hour
)

// Issue makes a token with what t says of its caller, roles, tools and note. A ttl of 0 is for ever. The token is in
// nobody's hands but the caller's.
func (k *TokenTable) Issue(_ context.Context, t identity.Token, ttl time.Duration) (token string, err error) {
	if err := checkToken(&t, ttl); err != nil {
		return "", err
	}
	roles, err := strictjson.Marshal(append([]string{}, t.Roles...))
	if err != nil {
		return "", err
	}
	tools, err := strictjson.Marshal(append(tool.Patterns{}, t.Tools...))
	if err != nil {
		return "", err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails: it ends the program instead
	token = identity.TokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	err = k.db.w.do(true, func(w *tx) error {
		now := time.Now()
		over := micros(now.Add(-tokenMemory))
		if err := w.exec(`DELETE FROM token WHERE expires_at < ? OR revoked_at < ?`, over, over); err != nil {
			return err
		}
		var expires sql.NullInt64
		if ttl > 0 {
			expires = sql.NullInt64{Int64: micros(now.Add(ttl)), Valid: true}
		}
		return w.exec(`INSERT INTO token (id, caller, roles, tools, listed, note, issued_at, expires_at) `+
			`VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			digestOf(token), t.Caller, string(roles), string(tools), flag(t.Listed), t.Note, micros(now), expires)
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

func checkToken(t *identity.Token, ttl time.Duration) error {
	switch {
	case t.Caller == "" || plain(t.Caller, maxName) != t.Caller:
		return tool.Errorf(tool.CodeInvalidInput, "a token needs the name of its caller, of at most %d bytes", maxName)
	case len(t.Roles) > maxGranted || len(t.Tools) > maxGranted:
		return tool.Errorf(tool.CodeInvalidInput, "a token has at most %d roles and %d patterns of tools", maxGranted,
			maxGranted)
	case plain(t.Note, maxNote) != t.Note:
		return tool.Errorf(tool.CodeInvalidInput, "the note of a token is text of at most %d bytes", maxNote)
	case ttl < 0 || ttl > 0 && ttl < time.Second || ttl > identity.MaxTokenTTL:
		return tool.Errorf(tool.CodeInvalidInput, "a token lasts from 1s to %v, or for ever with 0, not %v",
			identity.MaxTokenTTL, ttl)
	}
	return nil
}

const allIssued = `SELECT id, caller, roles, tools, listed, note, issued_at, expires_at, revoked_at FROM token`

// Lookup returns the token with that SHA-256, in hexadecimal digits, whatever its state; false: there is none.
func (k *TokenTable) Lookup(ctx context.Context, digest string) (t identity.Token, ok bool, err error) {
	err = k.db.read(ctx, func(r *reader) error {
		return r.each(scanToken(&t, micros(time.Now())), allIssued+` WHERE id = ?`, plain(digest, maxName))
	})
	return t, t.ID != "", err
}

// Find returns a token that is remembered, by its id or itself.
func (k *TokenTable) Find(ctx context.Context, id string) (t identity.Token, err error) {
	if id = plain(identity.TokenID(id), maxName); !isID(id) {
		return t, noToken(id)
	}
	err = k.db.read(ctx, func(r *reader) error {
		return r.each(scanToken(&t, micros(time.Now())), allIssued+withID, id, behind(id))
	})
	if err == nil && t.ID == "" {
		err = noToken(id)
	}
	return t, err
}

// List returns the tokens that are remembered, the newest first, and most of them at the most; 0: all.
func (k *TokenTable) List(ctx context.Context, most int) ([]identity.Token, error) {
	return list(ctx, k.db, scanTokens(time.Now()), allIssued+` ORDER BY issued_at DESC, id LIMIT ?`, atMost(most))
}

// Of returns the tokens of a caller that are remembered.
func (k *TokenTable) Of(ctx context.Context, caller string) ([]identity.Token, error) {
	return list(ctx, k.db, scanTokens(time.Now()), allIssued+` WHERE caller = ?`, plain(caller, maxName))
}

func scanTokens(now time.Time) func(*identity.Token) func(*sql.Rows) error {
	return func(t *identity.Token) func(*sql.Rows) error { return scanToken(t, micros(now)) }
}

// Revoke ends a token, by its id or itself: every program that shares the store refuses it from then on.
func (k *TokenTable) Revoke(_ context.Context, id string) error {
	if id = plain(identity.TokenID(id), maxName); !isID(id) {
		return noToken(id)
	}
	return k.db.w.do(true, func(w *tx) error {
		now := micros(time.Now())
		done, err := w.revoke("token", id, now, "")
		if err != nil || done {
			return err
		}
		var t identity.Token
		if err := w.each(scanToken(&t, now), allIssued+withID, id, behind(id)); err != nil {
			return err
		}
		if t.ID == "" {
			return noToken(id)
		}
		return notRevoked("token", id, t.State)
	})
}

func noToken(id string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no token %q; `toolpost token list` shows those that there are", id)
}

// scanToken reads a row of allIssued.
func scanToken(t *identity.Token, now int64) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var roles, tools string
		var listed, issued int64
		var expires, revoked sql.NullInt64
		if err := rows.Scan(&t.ID, &t.Caller, &roles, &tools, &listed, &t.Note, &issued, &expires,
			&revoked); err != nil {
			return err
		}
		t.ID, t.Listed, t.Issued = t.ID[:min(idLength, len(t.ID))], listed != 0, time.UnixMicro(issued).UTC()
		t.State = identity.Live
		if expires.Valid {
			t.Expires = time.UnixMicro(expires.Int64).UTC()
		}
		switch {
		case revoked.Valid:
			t.State = identity.Revoked
		case expires.Valid && now >= expires.Int64:
			t.State = identity.Expired
		}
		return errors.Join(strictjson.Unmarshal([]byte(roles), &t.Roles), strictjson.Unmarshal([]byte(tools), &t.Tools))
	}
}

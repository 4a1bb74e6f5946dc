package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/internal/idp"
)

// watched records every request, and answers as a provider that is down if the settings say so.
func (p *provider) watched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		_ = r.ParseForm()
		one := idp.Request{Path: r.URL.Path, Grant: r.PostForm.Get("grant_type"), Client: r.FormValue("client_id"), Sub: r.PostForm.Get("sub")}
		if id, _, ok := r.BasicAuth(); ok {
			one.Client, _ = url.QueryUnescape(id)
		}
		down := p.now().Down
		switch {
		case down == "500":
			http.Error(rec, "out of order", http.StatusInternalServerError)
		case down == "limit" && one.Grant != "":
			http.Error(rec, `{"error": "slow_down"}`, http.StatusTooManyRequests)
		case down != "refuse":
			next.ServeHTTP(rec, r)
		}
		one.Status = rec.Code
		if one.Sub == "" {
			one.Sub = rec.Header().Get(subHeader)
		}
		var failed struct{ Error string }
		_ = json.Unmarshal(rec.Body.Bytes(), &failed)
		one.Error = failed.Error
		p.mu.Lock()
		p.requests = append(p.requests, one)
		p.mu.Unlock()
		if down == "refuse" || down == "answer" && one.Grant != "" {
			panic(http.ErrAbortHandler)
		}
		rec.Header().Del(subHeader)
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

// subHeader tells watched who called the API.
const subHeader = "Idp-Sub"

func said(w http.ResponseWriter, sub string) { w.Header().Set(subHeader, sub) }

// faulty changes what the library answers, as the settings say.
func (p *provider) faulty(library http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		isToken := r.URL.Path == "/oauth/token"
		if isToken {
			time.Sleep(p.now().Slow)
		}
		library.ServeHTTP(rec, r)
		maps.Copy(w.Header(), rec.Header())
		if to := rec.Header().Get("Location"); to != "" {
			p.redirect(w, r, to)
			return
		}
		body, fields := rec.Body.Bytes(), map[string]any{}
		changes := isToken || r.URL.Path == "/.well-known/openid-configuration"
		if changes && decode(body, &fields) == nil && rec.Code == http.StatusOK {
			if isToken {
				p.tokens(fields, r.PostForm)
			} else {
				fields["authorization_response_iss_parameter_supported"] = true
				replace(fields, p.now().Metadata)
			}
			body, _ = json.Marshal(fields)
		}
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	})
}

func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(v)
}

func replace(fields, by map[string]any) {
	for name, v := range by {
		if fields[name] = v; v == nil {
			delete(fields, name)
		}
	}
}

// tokens changes the tokens of a response, and remembers them.
func (p *provider) tokens(fields map[string]any, asked url.Values) {
	now := p.now()
	if now.NoRefresh {
		delete(fields, "refresh_token")
	}
	if now.NoOtherID && asked.Get("grant_type") == "refresh_token" {
		delete(fields, "id_token")
	}
	access, _ := fields["access_token"].(string)
	if claims := claimsOf(access); claims != nil {
		if to := asked["resource"]; len(to) > 0 {
			claims["aud"] = to
		}
		fields["access_token"] = p.again(claims, now, now.AccessClaims)
	}
	if id, ok := fields["id_token"].(string); ok {
		claims := claimsOf(id)
		if access, ok := fields["access_token"].(string); ok {
			sum := sha256.Sum256([]byte(access))
			claims["at_hash"] = base64.RawURLEncoding.EncodeToString(sum[:16])
		}
		fields["id_token"] = p.again(claims, now, now.Claims)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range []string{"access_token", "refresh_token", "id_token"} {
		if text, ok := fields[name].(string); ok {
			p.issued = append(p.issued, text)
		}
	}
}

// again signs claims with the changes of the settings.
func (p *provider) again(claims map[string]any, now idp.Settings, changes map[string]any) string {
	for _, name := range []string{"iat", "nbf", "exp", "auth_time"} {
		if n, ok := claims[name].(json.Number); ok {
			seconds, _ := strconv.ParseInt(n.String(), 10, 64)
			claims[name] = seconds + int64(now.Skew.Seconds())
		}
	}
	replace(claims, changes)
	text, _ := p.sign("JWT", claims)
	return text
}

// claimsOf returns the claims of a JWT; nil if the text is none.
func claimsOf(text string) (claims map[string]any) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || decode(b, &claims) != nil {
		return nil
	}
	return claims
}

// signed signs claims, with those that every token has.
func (p *provider) signed(typ string, claims map[string]any) (string, error) {
	for name, v := range map[string]any{
		"iss": p.issuer, "iat": time.Now().Unix(), "exp": time.Now().Add(2 * time.Minute).Unix(),
	} {
		if _, ok := claims[name]; !ok {
			claims[name] = v
		}
	}
	replace(claims, maps.Clone(claims)) // what is nil is left out
	return p.sign(typ, claims)
}

func (p *provider) sign(typ string, claims map[string]any) (string, error) {
	k := p.key()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: k.algorithm, Key: jose.JSONWebKey{Key: k.private, KeyID: k.id}},
		(&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	if err != nil {
		return "", err
	}
	b, _ := json.Marshal(claims)
	signed, err := signer.Sign(b)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// logOut ends all sessions of a user, and tells the clients: OpenID Connect Back-Channel Logout 1.0.
func (p *provider) logOut(sub string) (map[string]int, error) {
	p.forget(sub)
	p.mu.Lock()
	clients := maps.Clone(p.clients)
	p.mu.Unlock()
	answers := map[string]int{}
	var failed error
	for id, c := range clients {
		if c.LogoutURL == "" {
			continue
		}
		text, err := p.signed("logout+jwt", map[string]any{
			"aud": id, "sub": sub, "jti": time.Now().Format(time.RFC3339Nano),
			"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
		})
		if err == nil {
			answers[id], err = post(c.LogoutURL, url.Values{"logout_token": {text}})
		}
		failed = errors.Join(failed, err)
	}
	return answers, failed
}

func post(address string, form url.Values) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
